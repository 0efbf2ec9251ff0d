package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

const (
	// required is the condition that an action sets.
	required corev1.NodeConditionType = "node-ready/RemediationRequired"
	// objectsIn is the namespace of the objects that an action creates: ConfigMaps, in place of remediation resources.
	objectsIn = "default"
	// aboutNode is on such an object: the UID of its node, and its name as medik8s looks for it.
	aboutNode    = "node-ready/node-uid"
	aboutName    = "remediation.medik8s.io/node-name"
	labelManaged = "app.kubernetes.io/managed-by"
)

// The kinds of entries of remediation.actions.
const (
	setCondition = "condition"
	makeObject   = "object"
	deleteOwner  = "delete"
)

// drawRepair draws what makes nodes suspect and what is done about those that fail. It is drawn apart from all else.
func (s *settings) drawRepair(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 12)) //nolint:gosec // no secret
	s.cooldown = []time.Duration{time.Hour, 6 * time.Second}[rng.IntN(2)]
	s.suspectFor, s.closes = rng.IntN(2), rng.IntN(2) == 0
	s.keeps, s.wait = rng.IntN(4) == 0, []time.Duration{4 * time.Second, 6 * time.Second}[rng.IntN(2)]
	s.actions = [][]string{nil, nil, nil,
		{setCondition, deleteOwner}, {makeObject, deleteOwner}, {setCondition, makeObject},
		{makeObject, setCondition, deleteOwner}, {setCondition, makeObject, deleteOwner}}[rng.IntN(8)]
	if len(s.actions) > 0 { // else few nodes get to the last one within a run
		s.maxRetries, s.neverVerifiedOnly = 1, s.neverVerifiedOnly && rng.IntN(2) == 0
	}
}

// entries are the actions, a deletion where none are set.
func (s settings) entries() []string {
	if len(s.actions) == 0 {
		return []string{deleteOwner}
	}
	return s.actions
}

// objectTemplate is that of the objects which an action creates.
func objectTemplate() map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": objectsIn,
		"annotations": map[string]any{aboutName: "{{node}}"}}}
}

// repairs adds to nodeManagement what was drawn.
func (s settings) repairs(nodeManagement map[string]any) {
	nodeManagement["reverify"] = map[string]any{"cooldownSeconds": int(s.cooldown / time.Second), "onConditions": []any{
		map[string]any{"type": suspectTypes[0], "taint": s.closes},
		map[string]any{"type": suspectTypes[1], "forSeconds": s.suspectFor},
	}}
	var actions []any
	for _, kind := range s.actions {
		entry := map[string]any{kind: map[string]any{}, "waitSeconds": int(s.wait / time.Second)}
		if kind == makeObject {
			entry[kind] = map[string]any{"template": objectTemplate(), "deleteOnRecovery": !s.keeps}
		}
		actions = append(actions, entry)
	}
	if len(actions) > 0 {
		nodeManagement["remediation"].(map[string]any)["actions"] = actions
	}
}

// interfere draws whether another program has written the condition of the first action on two nodes. It is drawn apart
// from all else, for runs in which no right is missing. The two nodes fail for good, and no limit is in the way, so that
// the guard "action" is what holds.
func (s *settings) interfere(seed uint64, faults []endless, only []string) []endless {
	rng := rand.New(rand.NewPCG(seed, 14)) //nolint:gosec // no secret
	drawn := rng.IntN(4) > 0
	if len(only) > 0 {
		drawn = slices.Contains(only, conditionTaken)
	}
	refuses := slices.ContainsFunc(faults, func(e endless) bool { return e.name == rightsRefused })
	if !drawn || refuses || s.entries()[0] != setCondition {
		return faults
	}
	s.neverVerifiedOnly, s.maxUnhealthy, s.perHour, s.inFlight = false, 100, 20, slots
	return append(faults, kindOf(conditionTaken).draw(rng))
}

// foreignCondition is the condition of our type that another program wrote; nil where there is none.
func foreignCondition(n *corev1.Node) *corev1.NodeCondition {
	for i, have := range n.Status.Conditions {
		if have.Type == required && have.Reason == "Chaos" {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// interferes checks what becomes of a condition that another program wrote, and of the action that would set it.
func (c *checker) interferes(n *nodeSeen, before, after *corev1.Node, ch change) {
	if was, is := foreignCondition(before), foreignCondition(after); was != nil &&
		(is == nil || is.Status != was.Status || !is.LastTransitionTime.Equal(&was.LastTransitionTime)) {
		c.fault(n, ch, "the condition that another program wrote is changed: %+v", is)
	}
	was, is := recordOf(before), recordOf(after)
	if is.Held != guardAction || was.Held == guardAction || n.spoilt {
		return
	}
	taken := foreignCondition(before) != nil && strings.Contains(is.HeldMessage, "another program already set")
	switch {
	case taken:
		c.counts["actions held for another program's condition"]++
	case strings.Contains(is.HeldMessage, "forbidden") && c.refuses(ch, "create", "get"):
		c.counts["actions held for a refused object"]++
	default:
		c.fault(n, ch, "an action is held as one that is refused, and nothing refuses it: %s", is.HeldMessage)
	}
}

// action is one that a record has.
type action struct {
	marks.Remediation
	at       time.Time // when it was seen to be intended
	revision int64     // in which it was
	boot     string    // of its node then
	entered  bool      // in the ledger since
	entry    *entryID  // what the ledger has it as, or had before it was tried again
	effects  int       // how often its condition was set or its object created
}

// remedy is what was seen of the actions on a node.
type remedy struct {
	// acting is the action that was last written into the record. The list done has the actions that were carried out
	// since the node passed, and not given up since. In early is the reason why a deletion came too early; it is empty if
	// none did.
	acting *action
	done   []*action
	early  string
	// objects are those that are there, by name; made are the names of all that ever were.
	objects, made map[string]bool
}

// acted is the action that was last carried out; nil if none was.
func (r remedy) acted() *action {
	if len(r.done) == 0 {
		return nil
	}
	return r.done[len(r.done)-1]
}

func lastAction(r marks.Record) marks.Remediation {
	if len(r.Remediations) == 0 {
		return marks.Remediation{}
	}
	return r.Remediations[len(r.Remediations)-1]
}

func sameAction(a, b marks.Remediation) bool {
	return a.Action == b.Action && a.Sequence == b.Sequence && a.Time.Equal(b.Time)
}

// entryKind is the kind of the action's entry.
func entryKind(a marks.Remediation) string {
	if a.Condition != "" {
		return setCondition
	}
	return makeObject
}

func requires(n *corev1.Node) bool { return conditionOf(n, required) == corev1.ConditionTrue }

// acts checks what a change makes of the actions in the record, and of the condition on the node.
func (c *checker) acts(n *nodeSeen, before, after *corev1.Node, ch change) {
	c.interferes(n, before, after, ch)
	if before.Annotations[annotationRecord] != after.Annotations[annotationRecord] {
		n.remedy = remedy{objects: n.objects, made: n.made}
		return
	}
	was, is := recordOf(before), recordOf(after)
	last, old := lastAction(is), lastAction(was)
	switch {
	case is.Sequence != was.Sequence && is.LastOutcome == attempt.Passed, last.State == "":
		n.done = nil
	case last.State == marks.RemediationIntended && (old.State != last.State || !sameAction(last, old)):
		c.intendsAction(n, before, last, ch)
	case last.State == marks.RemediationStarted && old.State == marks.RemediationIntended && n.acting != nil:
		c.counts["actions carried out: "+entryKind(last)]++
		n.done = append(n.done, n.acting)
		if n.acting.effects == 0 && !n.spoilt && entryKind(last) == setCondition {
			c.fault(n, ch, "the record says that the condition was set, and it was not")
		}
	case len(is.Remediations) < len(was.Remediations):
		n.done = slices.DeleteFunc(n.done, func(a *action) bool { return a.Action > last.Action }) // a guard held
	}
	if n.spoilt {
		return // nobody knows any more what the condition is from
	}
	if !requires(before) && requires(after) {
		c.counts["conditions set"]++
		c.effect(n, ch, setCondition, last)
	}
	reverted := slices.ContainsFunc(was.Remediations, func(a marks.Remediation) bool {
		return a.Condition != "" && a.State == marks.RemediationReverting
	})
	if requires(before) && !requires(after) {
		c.counts["conditions taken back"]++
		if !reverted {
			c.fault(n, ch, "the condition is taken back, and the record does not ask for it: %+v", was.Remediations)
		}
	}
}

// effect checks a condition that is set or an object that is created: the record intends it, the ledger has it, and it
// was not done before.
func (c *checker) effect(n *nodeSeen, ch change, kind string, last marks.Remediation) {
	switch a := n.acting; {
	case last.State != marks.RemediationIntended || entryKind(last) != kind || a == nil:
		c.fault(n, ch, "an action (%s) is carried out, and the record intends %+v", kind, last)
	case !a.entered:
		c.fault(n, ch, "an action (%s) is carried out, and the ledger does not have it", kind)
	case a.effects > 0:
		c.fault(n, ch, "an action (%s) is carried out twice", kind)
	default:
		a.effects++
	}
}

// intendsAction checks an action that is written into the record.
func (c *checker) intendsAction(n *nodeSeen, before *corev1.Node, a marks.Remediation, ch change) {
	c.counts["actions intended"]++
	r := recordOf(before)
	again := n.acting != nil && n.acting.Action == a.Action && lastAction(r).State == marks.RemediationIntended
	next := &action{Remediation: a, at: ch.at, revision: ch.revision, boot: boot(before)}
	if again {
		next.effects, next.entry = n.acting.effects, n.acting.entry // it may have been carried out
		// Entered again within the second, it is the same entry.
		at := c.entries[ptr.Deref(next.entry, entryID{})]
		next.entered = n.acting.entered && !at.Time.Before(a.Time.Truncate(time.Second))
	}
	if n.spoilt {
		n.acting = next
		return
	}
	why := optedOut(before)
	entries := c.settings.entries()
	switch probed := r.Probed || !c.settings.controlProbe && (r.Suspicion == nil || !r.MayHaveVerified()); {
	case int(a.Action) >= len(entries) || entries[a.Action] != entryKind(a):
		c.fault(n, ch, "entry %d is tried as %s, of %v", a.Action, entryKind(a), entries)
	case r.LastOutcome != attempt.Failed || r.Attempts != c.settings.maxRetries:
		c.fault(n, ch, "an action is intended after %+v", r)
	case r.Sequence <= n.accused:
		c.fault(n, ch, "an action is intended, and no attempt failed since the node was suspected or passed after attempt %d",
			n.accused)
	case why != "":
		c.fault(n, ch, "an action is intended, although %s was accepted before", why)
	case n.passed && c.settings.neverVerifiedOnly:
		c.fault(n, ch, "an action is intended, although the node was verified")
	case c.busy(n, ch):
		c.fault(n, ch, "an action is intended, although the node runs ordinary pods")
	case !probed && r.LastReason != workerStuck:
		c.fault(n, ch, "an action is intended, and no probe passed beside the last failure")
	case entryKind(a) == setCondition && foreignCondition(before) != nil:
		c.fault(n, ch, "the condition is to be set, although another program wrote it")
	case a.Action > 0 && requires(before):
		c.fault(n, ch, "entry %d is tried while the condition of another one is on the node", a.Action)
	}
	if early := c.tooEarly(n, a.Action, r, boot(before), ch); early != "" {
		c.fault(n, ch, "%s", early)
	}
	c.crowded(n, ch, "an action is intended")
	n.acting = next
}

// tooEarly says why an entry may not be tried yet; empty if it may. The one before was carried out, so long ago or in
// another boot, and the retries were used up again since.
func (c *checker) tooEarly(n *nodeSeen, index int32, r marks.Record, boot string, ch change) string {
	switch a := n.acted(); {
	case index == 0 || n.spoilt:
	case a == nil || a.Action != index-1:
		return fmt.Sprintf("entry %d is tried, and the one before was not carried out", index)
	case r.Sequence == a.Sequence, r.LastReason != workerStuck && r.Sequence < a.Sequence+r.Attempts:
		return fmt.Sprintf("entry %d is tried without a round of attempts after the one before", index)
	case a.boot == boot && ch.at.Sub(a.at) < c.settings.wait-underWay:
		return fmt.Sprintf("entry %d is tried %s after the one before", index, ch.at.Sub(a.at))
	}
	return ""
}

// awaits checks that a node is left alone after an action before its next attempt begins.
func (c *checker) awaits(n *nodeSeen, ch change) {
	a := n.acted()
	if a == nil || n.spoilt || recordOf(n.node).Sequence != a.Sequence || boot(n.node) != a.boot {
		return
	}
	if since := ch.at.Sub(a.at); since < c.settings.wait-underWay {
		c.fault(n, ch, "it is verified again %s after an action, before its wait of %s is over", since, c.settings.wait)
	}
}

// enters checks an action that is entered in the ledger.
func (c *checker) enters(n *nodeSeen, e ledger.Entry, ch change) {
	a := n.acting
	if n.spoilt || n.gone {
		return
	}
	last := lastAction(recordOf(n.node))
	if a == nil || last.State != marks.RemediationIntended || last.TargetKind() != e.Kind {
		c.fault(n, ch, "an action (%s) is entered in the ledger, and the record intends %+v", e.Kind, last)
		return
	}
	id := idOf(e)
	switch {
	case id.index != a.Action:
		c.fault(n, ch, "entry %d is entered in the ledger as entry %d", a.Action, id.index)
	case a.entry != nil && *a.entry != id:
		c.fault(n, ch, "an action is entered in the ledger twice: %+v, %+v", *a.entry, id)
	}
	a.entered, a.entry = true, &id
}

// seeObject checks an object that an action created.
func (c *checker) seeObject(before, after *corev1.ConfigMap, ch change) {
	o := after
	if o == nil {
		o = before
	}
	n := c.ever[types.UID(o.Annotations[aboutNode])]
	if n == nil {
		if before == nil {
			c.fault(nil, ch, "an object is created for a node that never was: %v", o.Annotations)
		}
		return
	}
	switch {
	case before == nil:
		c.counts["objects created"]++
		n.tell(ch, "object %s created", o.Name)
		again := n.made[o.Name]
		if n.made == nil {
			n.objects, n.made = map[string]bool{}, map[string]bool{}
		}
		n.objects[o.Name], n.made[o.Name] = true, true
		last := lastAction(recordOf(n.node))
		switch {
		case n.spoilt || n.gone:
		case again:
			c.fault(n, ch, "object %s is created twice", o.Name)
		case o.Annotations[aboutName] != n.node.Name || last.Name != o.Name:
			c.fault(n, ch, "object %s is created for %s, and the record names %q", o.Name, o.Annotations[aboutName], last.Name)
		default:
			c.effect(n, ch, makeObject, last)
		}
	case after == nil && n.objects[o.Name]:
		c.counts["objects deleted"]++
		n.tell(ch, "object %s deleted", o.Name)
		delete(n.objects, o.Name)
		asked := slices.ContainsFunc(recordOf(n.node).Remediations, func(a marks.Remediation) bool {
			return a.Name == o.Name && a.State == marks.RemediationReverting
		})
		if !asked && !n.spoilt && !n.gone {
			c.fault(n, ch, "object %s is deleted, and the record does not ask for it", o.Name)
		}
	}
}

// crowded checks that so few nodes are unhealthy that one more may be.
func (c *checker) crowded(n *nodeSeen, ch change, what string) {
	bad, total := c.outage(n, ch)
	if most := (total*c.settings.maxUnhealthy + 99) / 100; len(bad) > most {
		c.fault(n, ch, "%s while %d of %d nodes failed or were deleted, the limit is %d:\n  %s",
			what, len(bad), total, most, strings.Join(bad, "\n  "))
	}
}

// repaired says what is left of actions on a node that passed.
func (c *checker) repaired(n *nodeSeen, say func(string, ...any)) {
	if n.spoilt || !free(n.node) {
		return
	}
	left := recordOf(n.node).Remediations
	awaited := map[string]bool{}
	for _, a := range left {
		awaited[a.Name] = a.State == marks.RemediationReverting && a.Condition == ""
	}
	stays := c.refusesForGood("get", "delete") // then an object stays, and so does its action
	if done := len(left) == 0 || stays && !slices.Contains(slices.Collect(maps.Values(awaited)), false); !done || requires(n.node) {
		say("%s is verified, and its actions are not taken back: condition %t, %+v", n.node.Name, requires(n.node), left)
	}
	for name := range n.objects {
		if !c.settings.keeps && (!stays || !awaited[name]) {
			say("%s is verified, and object %s is left", n.node.Name, name)
		}
	}
}

// sweepObjects takes away the objects that a run has left.
func (s *stage) sweepObjects(ctx context.Context) error {
	return s.api.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(objectsIn),
		client.HasLabels{labelManaged})
}
