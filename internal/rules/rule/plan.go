package rule

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// A rule holds a node by a taint that was there already (a kubelet's --register-with-taints, an autoscaler's template) before
// it is written down that the rule owns it: adoptCalm after the last node has joined or changed, adoptAfter at the latest. A
// node of a burst that is ready sooner costs one write and not two. Until then the process remembers it, and a rule that is
// deleted counts as the owner on every node that it holds.
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

// Act is one operation of a rule.
type Act struct {
	// Rule is the rule. One that no longer exists has a UID and no name.
	Rule      *Rule
	Operation Operation
	// Taint is the taint that the operation is about.
	Taint marks.TaintID
}

// Plan is what the rules ask of a node.
type Plan struct {
	// Change is written in one patch; it may be empty.
	Change marks.RuleChange
	// Acts are what the change does, for events and metrics. Where the change is empty there may be an adoption, which is
	// written down later.
	Acts []Act
	// Evaluations are the rules that select the node and decide about their taint.
	Evaluations []Evaluation
	// Adopting are the UIDs of rules that hold the node by a taint that nobody owns yet. The caller remembers since when.
	Adopting []string
	// Released are the UIDs of the bootstrap-only rules that have been seen to be passed, once the change is written. The
	// caller remembers them for Node.
	Released []string
	// Wait is when to look again even if nothing changes; 0 for no such time.
	Wait time.Duration
	// Unavailable says why the rules cannot be served although they concern the node: until they are, nothing is done on
	// it. Empty where they are served.
	Unavailable string
}

// Next is what the rules, sorted by Sort, ask of a node. staleAfter is rules.staleAfter; 0 for none. What is
// asked follows from what is there and not from what changed: asked again it comes out the same, and once it is done it
// comes out empty.
func Next(n Node, rules []Rule, staleAfter time.Duration, now time.Time) Plan {
	if n.Node.DeletionTimestamp != nil {
		return Plan{}
	}
	if n.Limited {
		n.releasedBy = marks.ReleasedOn(n.Node)
	}
	karpenter := owner.Of(n.Node)
	d := ruling{node: n, now: now, rules: rules, decides: map[marks.TaintID]*Evaluation{}, unregistered: karpenter.Managed && !karpenter.Registered}
	d.owned = d.credible(marks.OwnedOn(n.Node))
	d.next = maps.Clone(d.owned)
	for i := range rules {
		r := &rules[i]
		if r.Deleting || r.Invalid != "" || !r.Acts() && !r.DryRun || !r.Selects(n.Node.Labels) {
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
	d.account()
	return d.plan
}

// Concerns reports whether any rule has to do with the node.
func (p *Plan) Concerns() bool {
	return len(p.Evaluations) > 0 || !p.Change.Empty() || p.Unavailable != ""
}

func (p *Plan) wait(d time.Duration) {
	if d > 0 && (p.Wait == 0 || d < p.Wait) {
		p.Wait = d
	}
}

// ruling is a decision about the rules of one node under way.
type ruling struct {
	node    Node
	now     time.Time
	rules   []Rule
	owned   marks.Owned // as written on the node, as far as it is credible
	next    marks.Owned // as it is to be
	decides map[marks.TaintID]*Evaluation
	plan    Plan
	// releases are the UIDs of rules that release the node for the first time.
	releases []string
	// unregistered: Karpenter merges startup taints back until it has registered the node, so none is removed before.
	unregistered bool
}

// credible are the entries of the annotation that count. A kubelet may annotate its Node and may not change its taints
// (k8s.io/kubernetes plugin/pkg/admission/noderestriction), so an entry must not make us remove a taint for it: the key has
// the prefix of rules, the taint gates no node for verification, and it is that of the rule which the entry names. The
// taint of a rule that no longer exists is one that no other rule has, or that an unknown UID stands for. Nothing shows that
// of a taint with a prefix which other programs use as well, so that counts only for a rule which exists and has it.
func (d *ruling) credible(written marks.Owned) marks.Owned {
	credible := marks.Owned{}
	for uid, id := range written {
		named := d.rule(uid)
		other := slices.ContainsFunc(d.rules, func(r Rule) bool { return r.Taint.ID() == id })
		gone := strings.HasPrefix(id.Key, marks.RuleTaintPrefix) && (named == nil || !other)
		if d.ofRules(id) && (gone || named != nil && named.Taint.ID() == id) {
			credible[uid] = id
		}
	}
	return credible
}

// ofRules reports whether a taint can be a rule's at all.
func (d *ruling) ofRules(id marks.TaintID) bool {
	gates := func(t marks.Taint) bool { return t.ID() == id }
	_, _, prefixed := marks.CutRulePrefix(id.Key)
	return prefixed && !slices.ContainsFunc(d.node.Gating, gates)
}

// rule is the rule of a UID; nil for one that does not exist.
func (d *ruling) rule(uid string) *Rule {
	for i := range d.rules {
		if d.rules[i].UID == uid {
			return &d.rules[i]
		}
	}
	return nil
}

// release takes off what a rule owns and does not ask for any more: it is deleted, refused, does not select the node, or
// another one decides about the taint.
func (d *ruling) release(r *Rule) {
	if r.idle() {
		return
	}
	id, owns := d.owned[r.UID]
	if e := d.decides[id]; owns && (e == nil || e.Rule != r) { // else enforce decides
		d.disown(r, id)
	}
	if id != r.Taint.ID() && d.holdsUnwritten(r) {
		d.letGo(r, r.Taint.ID())
	}
}

// releaseOrphans takes off what rules own that no longer exist: their finalizer was removed by hand, or they were deleted
// together with their definition. A taint that a rule in a dry run may hold stays: a kubelet may write an unknown UID.
func (d *ruling) releaseOrphans() {
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

// disown releases what a rule is written to own. On a node that Karpenter has not registered it stays until then.
func (d *ruling) disown(r *Rule, id marks.TaintID) {
	if d.unregistered && tainted(d.node.Node, id) {
		return
	}
	delete(d.next, r.UID)
	d.letGo(r, id)
}

// letGo takes off a taint that a rule owned, unless another rule decides about it, or is about to once it has its finalizer:
// that keeps it, or takes it off itself.
func (d *ruling) letGo(r *Rule, id marks.TaintID) {
	about := func(other Rule) bool {
		return !other.Deleting && !other.Finalized && !other.DryRun && other.Taint.ID() == id && other.Selects(d.node.Node.Labels)
	}
	e := d.decides[id]
	if (e == nil || e.Completed) && tainted(d.node.Node, id) && !d.unregistered && !slices.ContainsFunc(d.rules, about) {
		d.remove(r, id)
	}
}

// holdsUnwritten reports whether a rule holds the node by a taint without its being written down: that is not due yet, or
// the node-readiness-controller put it there, which may have admitted a rule that is refused here.
func (d *ruling) holdsUnwritten(r *Rule) bool {
	if d.owner(r.Taint.ID()) != "" || !d.ofRules(r.Taint.ID()) {
		return false
	}
	if r.Invalid != "" {
		return r.selector.Matches(labels.Set(d.node.Node.Labels))
	}
	if _, ok := d.node.Adopting[r.UID]; ok && !r.Selects(d.node.Node.Labels) {
		return true
	}
	return r.Deleting && r.Finalized && r.Selects(d.node.Node.Labels) && (r.Continuous || !marks.BootstrapCompleted(d.node.Node, r.UID, r.Name))
}

// owner is the UID of the rule that owns a taint; empty for none.
func (d *ruling) owner(id marks.TaintID) string {
	for uid, owned := range d.owned {
		if owned == id {
			return uid
		}
	}
	return ""
}

// enforce carries out what the rule that decides asks for.
func (d *ruling) enforce(e Evaluation) {
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
	case e.Completed: // the annotation alone removes no taint: a kubelet may write it
	case e.LeftOpen:
	case !e.Tainted:
		d.plan.Change.Add = append(d.plan.Change.Add, r.Taint)
		d.act(r, Add)
		d.own(r)
	case d.owned[r.UID] == id:
	case d.owner(id) != "":
		d.own(r) // from one that is deleted, refused or overruled, or that nobody knows any more
		d.act(r, Adopt)
	default:
		since, seen := d.node.Adopting[r.UID]
		if !seen {
			since = d.now
		}
		due := since.Add(adoptAfter)
		if calm := since.Add(max(0, d.node.LastChange.Sub(since)) + adoptCalm); calm.Before(due) {
			due = calm
		}
		left := due.Sub(d.now)
		if !seen || left <= 0 { // it is said once: both are one event
			d.act(r, Adopt)
		}
		if left <= 0 {
			d.own(r)
			return
		}
		d.plan.Adopting = append(d.plan.Adopting, r.UID)
		d.plan.wait(left)
	}
}

// own makes the rule the one owner of its taint.
func (d *ruling) own(r *Rule) {
	maps.DeleteFunc(d.next, func(_ string, id marks.TaintID) bool { return id == r.Taint.ID() })
	d.next[r.UID] = r.Taint.ID()
}

func (d *ruling) remove(r *Rule, id marks.TaintID) {
	if slices.Contains(d.plan.Change.Remove, id) {
		return
	}
	d.plan.Change.Remove = append(d.plan.Change.Remove, id)
	d.plan.Acts = append(d.plan.Acts, Act{Rule: r, Operation: Remove, Taint: id})
}

func (d *ruling) complete(r *Rule) {
	if d.plan.Change.Completed == nil {
		d.plan.Change.Completed = map[string]string{}
	}
	d.plan.Change.Completed[r.UID] = r.Name
	d.plan.Released = append(d.plan.Released, r.UID)
	d.act(r, Complete)
}

func (d *ruling) act(r *Rule, o Operation) {
	d.plan.Acts = append(d.plan.Acts, Act{Rule: r, Operation: o, Taint: r.Taint.ID()})
}

// account completes the change by who owns what after it. What a rule that nobody knows is written to own is no reason for a
// write, and goes with the next one once its taint is gone.
func (d *ruling) account() {
	c := &d.plan.Change
	if len(d.releases) > 0 {
		// The UIDs of rules that no longer exist go with this write.
		gone := func(uid string) bool { return d.rule(uid) == nil }
		c.Released = append(slices.DeleteFunc(slices.Clone(d.node.releasedBy), gone), d.releases...)
	}
	if maps.Equal(d.next, d.owned) && c.Empty() {
		return
	}
	maps.DeleteFunc(d.next, func(_ string, id marks.TaintID) bool {
		added := slices.ContainsFunc(c.Add, func(t marks.Taint) bool { return t.ID() == id })
		return !added && (slices.Contains(c.Remove, id) || !tainted(d.node.Node, id))
	})
	if !maps.Equal(d.next, d.owned) {
		c.Owned = d.next
	}
}

// OnCreation is what the rules, sorted by Sort, put on a node at its creation: the taints that they would
// put on it right after, and who owns them. Nothing is taken off, and what the node says of itself counts for
// nothing: one that is replaced under its name starts afresh. The chart's policy says the same in CEL.
func OnCreation(n *corev1.Node, rules []Rule, gating []marks.Taint) marks.RuleChange {
	plain := *n
	plain.Annotations = nil
	plan := Next(Node{Node: &plain, Gating: gating}, rules, 0, time.Time{})
	change := marks.RuleChange{Add: plan.Change.Add}
	for _, a := range plan.Acts {
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
