package rule

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// A rule adopts a taint that a node registered with (a kubelet's --register-with-taints, an autoscaler's template). It
// holds the node by that taint at once. The ownership is written adoptCalm after the last node has joined or changed,
// and after adoptAfter at the latest. So a node of a burst that is ready sooner costs one write and not two. Until then
// the process remembers the adoption, and a rule that is deleted counts as the owner on every node that it holds.
const (
	adoptCalm  = 3 * time.Second
	adoptAfter = 10 * time.Second
)

// Operation is what a rule does to a node's taint.
type Operation string

// The operations.
const (
	Add      Operation = "add"      // put the taint on
	Remove   Operation = "remove"   // take it off
	Adopt    Operation = "adopt"    // hold the node by a taint that was there
	Complete Operation = "complete" // a bootstrap-only rule is passed
)

// Action is one operation of a rule.
type Action struct {
	// Rule is the rule. One that no longer exists has a UID and no name.
	Rule      *Rule
	Operation Operation
	// Taint is the taint that the operation is about.
	Taint marks.TaintID
}

// Plan is what the rules require of a node.
type Plan struct {
	// Change is written in one patch; it may be empty.
	Change marks.RuleChange
	// Actions are what the change does, for events and metrics. An adoption may stand beside an empty change: it is
	// written later.
	Actions []Action
	// Evaluations are the rules that select the node and decide about their taint.
	Evaluations []Evaluation
	// Adopting are the UIDs of rules that hold the node by a taint that nobody owns yet. The caller remembers since when.
	Adopting []string
	// Released are the UIDs of the bootstrap-only rules that the node is observed to have passed once the change is
	// written. The caller remembers them for Node.
	Released []string
	// Wait is when to evaluate again even if nothing changes; 0 for no such time.
	Wait time.Duration
	// Unavailable is why the rules cannot be served although they concern the node. Until they are served, nothing is
	// changed on the node. Empty if they are served.
	Unavailable string
}

// Next is what the rules, sorted by Sort, require of a node. staleAfter is rules.staleAfter; 0 for none. The plan
// depends only on the present state: the same state gives the same plan, and an empty one once the plan is written.
func Next(n Node, rules []Rule, staleAfter time.Duration, now time.Time) Plan {
	if n.Node.DeletionTimestamp != nil {
		return Plan{}
	}
	if n.Limited {
		n.releasedBy = marks.ReleasedOn(n.Node)
	}
	karpenter := owner.Of(n.Node)
	d := planner{node: n, now: now, rules: rules, decides: map[marks.TaintID]*Evaluation{},
		unregistered: karpenter.Managed && !karpenter.Registered && !n.Registered}
	d.owned = d.trusted(marks.OwnedOn(n.Node))
	d.next = maps.Clone(d.owned)
	for i := range rules {
		r := &rules[i]
		if r.Deleting || r.Invalid != "" || !r.Active() && !r.DryRun || !r.Selects(n.Node.Labels) {
			continue
		}
		if _, taken := d.decides[r.Taint.ID()]; taken && !r.DryRun {
			continue // an older rule decides about this taint
		}
		e, wait := evaluate(r, n, staleAfter, now)
		e.Unregistered = d.unregistered
		d.plan.wait(wait)
		d.plan.Evaluations = append(d.plan.Evaluations, e)
		if !r.DryRun {
			d.decides[r.Taint.ID()] = &e
		}
	}
	for i := range rules {
		d.release(&rules[i])
	}
	d.releaseOrphans()
	for _, e := range d.plan.Evaluations {
		d.enforce(e)
	}
	d.recordOwners()
	return d.plan
}

// Concerns reports whether any rule concerns the node.
func (p *Plan) Concerns() bool {
	return len(p.Evaluations) > 0 || !p.Change.Empty() || p.Unavailable != ""
}

func (p *Plan) wait(d time.Duration) {
	if d > 0 && (p.Wait == 0 || d < p.Wait) {
		p.Wait = d
	}
}

// planner makes the plan of one node.
type planner struct {
	node    Node
	now     time.Time
	rules   []Rule
	owned   marks.Owned // as written on the node, without what cannot be trusted
	next    marks.Owned // as it has to be
	decides map[marks.TaintID]*Evaluation
	plan    Plan
	// releases are the UIDs of rules that release the node for the first time.
	releases []string
	// unregistered: Karpenter merges startup taints back until it has registered the node. So no taint is removed before
	// that.
	unregistered bool
}

// trusted returns the entries of the annotation that the controller relies on. A kubelet may annotate its Node but not
// change its taints (k8s.io/kubernetes plugin/pkg/admission/noderestriction). So an entry must not make the controller
// remove a taint on the kubelet's behalf. The key must have the prefix of rules, and the taint must not gate nodes for
// verification. It must be the taint of the rule that the entry names, or of a rule that no longer exists. The latter
// means that no rule has the UID, or that no rule has the taint. Other programs use the autoscaler's prefix too, so a
// taint with that prefix counts only for a rule that exists and has it.
func (d *planner) trusted(written marks.Owned) marks.Owned {
	trusted := marks.Owned{}
	for uid, id := range written {
		named := d.rule(uid)
		other := slices.ContainsFunc(d.rules, func(r Rule) bool { return r.Taint.ID() == id })
		gone := strings.HasPrefix(id.Key, marks.RuleTaintPrefix) && (named == nil || !other)
		if MayHave(id, d.node.Gating) && (gone || named != nil && named.Taint.ID() == id) {
			trusted[uid] = id
		}
	}
	return trusted
}

// MayHave reports whether a rule may have the taint at all. gating are the taints that verification owns.
func MayHave(id marks.TaintID, gating []marks.Taint) bool {
	gates := func(t marks.Taint) bool { return t.ID() == id }
	_, _, prefixed := marks.CutRulePrefix(id.Key)
	return prefixed && !slices.ContainsFunc(gating, gates)
}

// rule is the rule with the UID, or nil if there is none.
func (d *planner) rule(uid string) *Rule {
	if i := slices.IndexFunc(d.rules, func(r Rule) bool { return r.UID == uid }); i >= 0 {
		return &d.rules[i]
	}
	return nil
}

// release removes what a rule owns but no longer asks for. The rule is deleted or refused, does not select the node, or
// leaves the taint to another rule.
func (d *planner) release(r *Rule) {
	if r.idle() {
		return
	}
	id, owns := d.owned[r.UID]
	if e := d.decides[id]; owns && (e == nil || e.Rule != r) { // else enforce decides
		d.disown(r, id)
	}
	if id != r.Taint.ID() && d.holdsUnrecorded(r) {
		d.removeUnlessClaimed(r, r.Taint.ID())
	}
}

// releaseOrphans removes what rules own that no longer exist. Somebody removed their finalizer, or they were deleted
// together with their definition. A taint that a dry-run rule may hold stays, because a kubelet may write an unknown
// UID.
func (d *planner) releaseOrphans() {
	for _, uid := range slices.Sorted(maps.Keys(d.owned)) {
		id := d.owned[uid]
		dry := func(r Rule) bool {
			return r.DryRun && !r.Deleting && r.Taint.ID() == id && r.Selects(d.node.Node.Labels)
		}
		if d.rule(uid) == nil && d.decides[id] == nil && !slices.ContainsFunc(d.rules, dry) { // else enforce decides
			d.disown(&Rule{UID: uid, Taint: marks.Taint{Key: id.Key, Effect: id.Effect}}, id)
		}
	}
}

// disown releases what a rule owns according to the annotation. On a node that Karpenter has not registered, the taint
// stays until the registration.
func (d *planner) disown(r *Rule, id marks.TaintID) {
	if d.unregistered && Tainted(d.node.Node, id) {
		return
	}
	delete(d.next, r.UID)
	d.removeUnlessClaimed(r, id)
}

// removeUnlessClaimed removes a taint that a rule owned. It leaves the taint to another rule that decides about it now,
// or that will do so once it has its finalizer.
func (d *planner) removeUnlessClaimed(r *Rule, id marks.TaintID) {
	claims := func(other Rule) bool {
		waits := !other.Deleting && !other.Finalized && !other.DryRun
		return waits && other.Taint.ID() == id && other.Selects(d.node.Node.Labels)
	}
	e := d.decides[id]
	if (e == nil || e.Completed) && Tainted(d.node.Node, id) && !d.unregistered && !slices.ContainsFunc(d.rules, claims) {
		d.remove(r, id)
	}
}

// holdsUnrecorded reports whether a rule holds the node by a taint without being recorded as its owner. Either the
// record is not due yet, or the node-readiness-controller added the taint. That controller may have admitted a rule
// that is refused here.
func (d *planner) holdsUnrecorded(r *Rule) bool {
	if d.owner(r.Taint.ID()) != "" || !MayHave(r.Taint.ID(), d.node.Gating) {
		return false
	}
	if r.Invalid != "" {
		return r.Concerns(d.node.Node.Labels)
	}
	selects := r.Selects(d.node.Node.Labels)
	if _, ok := d.node.Adopting[r.UID]; ok && !selects {
		return true
	}
	return r.Deleting && r.Finalized && selects &&
		(r.Continuous || !marks.BootstrapCompleted(d.node.Node, r.UID, r.Name, r.Created))
}

// owner is the UID of the rule that owns a taint, or empty if there is none.
func (d *planner) owner(id marks.TaintID) string {
	for uid, owned := range d.owned {
		if owned == id {
			return uid
		}
	}
	return ""
}

// enforce adds to the plan what the rule that decides about the taint requires.
func (d *planner) enforce(e Evaluation) {
	r, id := e.Rule, e.Rule.Taint.ID()
	released := e.Completed && (slices.Contains(d.node.Released, r.UID) || e.Met && !e.Tainted)
	if released {
		d.plan.Released = append(d.plan.Released, r.UID)
	}
	switch {
	case e.State == Dry, (e.Met || released) && d.unregistered:
	case e.Met, released:
		if e.Tainted {
			d.remove(r, id)
		}
		delete(d.next, r.UID)
		if !r.Continuous && !e.Completed {
			d.complete(r)
		}
		if d.node.Limited && r.Continuous && !e.ReleasedBefore {
			d.releases = append(d.releases, r.UID)
		}
	case e.Completed, e.LeftOpen: // the annotation Completed alone removes no taint: a kubelet may write it
	case !e.Tainted:
		d.plan.Change.Add = append(d.plan.Change.Add, r.Taint)
		d.act(r, Add)
		d.own(r)
	case d.owned[r.UID] == id:
	case d.owner(id) != "":
		d.own(r) // from a rule that is deleted, refused, overruled or unknown
		d.act(r, Adopt)
	default:
		d.adopt(r)
	}
}

// adopt holds the node by a taint without an owner, and makes the rule its owner when that is due.
func (d *planner) adopt(r *Rule) {
	since, known := d.node.Adopting[r.UID]
	if !known {
		since = d.now
	}
	calm := max(0, d.node.LastChange.Sub(since)) + adoptCalm
	left := since.Add(min(calm, adoptAfter)).Sub(d.now)
	if !known || left <= 0 { // both have the same event, which is emitted once
		d.act(r, Adopt)
	}
	if left <= 0 {
		d.own(r)
		return
	}
	d.plan.Adopting = append(d.plan.Adopting, r.UID)
	d.plan.wait(left)
}

// own makes the rule the only owner of its taint.
func (d *planner) own(r *Rule) {
	maps.DeleteFunc(d.next, func(_ string, id marks.TaintID) bool { return id == r.Taint.ID() })
	d.next[r.UID] = r.Taint.ID()
}

func (d *planner) remove(r *Rule, id marks.TaintID) {
	if slices.Contains(d.plan.Change.Remove, id) {
		return
	}
	d.plan.Change.Remove = append(d.plan.Change.Remove, id)
	d.plan.Actions = append(d.plan.Actions, Action{Rule: r, Operation: Remove, Taint: id})
}

func (d *planner) complete(r *Rule) {
	if d.plan.Change.Completed == nil {
		d.plan.Change.Completed = map[string]string{}
	}
	d.plan.Change.Completed[r.UID] = r.Name
	d.plan.Released = append(d.plan.Released, r.UID)
	d.act(r, Complete)
}

func (d *planner) act(r *Rule, o Operation) {
	d.plan.Actions = append(d.plan.Actions, Action{Rule: r, Operation: o, Taint: r.Taint.ID()})
}

// recordOwners adds to the change which rule owns which taint after it. An entry of an unknown rule does not cause a
// write. It is removed with the next write after its taint is gone.
func (d *planner) recordOwners() {
	c := &d.plan.Change
	if len(d.releases) > 0 {
		// This write also removes the UIDs of rules that no longer exist.
		gone := func(uid string) bool { return d.rule(uid) == nil }
		c.Released = append(slices.DeleteFunc(slices.Clone(d.node.releasedBy), gone), d.releases...)
	}
	if maps.Equal(d.next, d.owned) && c.Empty() {
		return
	}
	maps.DeleteFunc(d.next, func(_ string, id marks.TaintID) bool {
		added := slices.ContainsFunc(c.Add, func(t marks.Taint) bool { return t.ID() == id })
		return !added && (slices.Contains(c.Remove, id) || !Tainted(d.node.Node, id))
	})
	if !maps.Equal(d.next, d.owned) {
		c.Owned = d.next
	}
}

// OnCreation is what the rules, sorted by Sort, add to a node on its creation: the taints that they would add right
// after it, and who owns them. Nothing is removed, and the node's annotations do not count: a node that is replaced
// under its name starts afresh. The chart's policy does the same in CEL.
func OnCreation(n *corev1.Node, rules []Rule, gating []marks.Taint) marks.RuleChange {
	plain := *n
	plain.Annotations = nil
	plan := Next(Node{Node: &plain, Gating: gating}, rules, 0, time.Time{})
	change := marks.RuleChange{Add: plan.Change.Add}
	for _, a := range plan.Actions {
		if a.Operation == Add {
			if change.Owned == nil {
				change.Owned = marks.Owned{}
				maps.Copy(change.Owned, marks.OwnedOn(n))
			}
			change.Owned[a.Rule.UID] = a.Taint
		}
	}
	return change
}
