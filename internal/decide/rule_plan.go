package decide

import (
	"maps"
	"slices"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// A rule holds a node by a taint that was there already (a kubelet's --register-with-taints, an autoscaler's template) before
// it is written down that the rule owns it: adoptCalm after the last node has joined or changed, adoptAfter at the latest. A
// node of a burst that is ready sooner costs one write and not two. Until then the process remembers it, and a rule that is
// deleted counts as the owner on every node that it holds.
const (
	adoptCalm  = 3 * time.Second
	adoptAfter = 10 * time.Second
)

// RuleOperation is what a rule does to a node's taint.
type RuleOperation string

// The operations.
const (
	RuleAdd      RuleOperation = "add"      // put the taint on
	RuleRemove   RuleOperation = "remove"   // take it off
	RuleAdopt    RuleOperation = "adopt"    // hold the node by a taint that was there
	RuleComplete RuleOperation = "complete" // a bootstrap-only rule is passed
)

// RuleAct is one operation of a rule.
type RuleAct struct {
	Rule      *Rule
	Operation RuleOperation
}

// RulePlan is what the rules ask of a node.
type RulePlan struct {
	// Change is written in one patch; it may be empty.
	Change marks.RuleChange
	// Acts are what the change does, for events and metrics. Where the change is empty there may be an adoption, which is
	// written down later.
	Acts []RuleAct
	// Evaluations are the rules that select the node and decide about their taint.
	Evaluations []Evaluation
	// Adopting are the UIDs of rules that hold the node by a taint that nobody owns yet. The caller remembers since when.
	Adopting []string
	// Wait is when to look again even if nothing changes; 0 for no such time.
	Wait time.Duration
}

// NextRules is what the rules, sorted by SortRules, ask of a node. staleAfter is rules.staleAfter; 0 for none. What is
// asked follows from what is there and not from what changed: asked again it comes out the same, and once it is done it
// comes out empty.
func NextRules(n RuleNode, rules []Rule, staleAfter time.Duration, now time.Time) RulePlan {
	if n.Node.DeletionTimestamp != nil {
		return RulePlan{}
	}
	d := ruling{node: n, now: now, owned: marks.OwnedOn(n.Node), decides: map[marks.TaintID]*Evaluation{}}
	d.next = maps.Clone(d.owned)
	if d.next == nil {
		d.next = marks.Owned{}
	}
	for i := range rules {
		r := &rules[i]
		if r.Deleting || r.Fault != "" || !r.Acts() && !r.DryRun || !r.Selects(n.Node.Labels) {
			continue
		}
		if _, taken := d.decides[r.Taint.ID()]; taken && !r.DryRun {
			continue // an older rule decides about this taint
		}
		e, wait := evaluate(r, n, staleAfter, now)
		d.plan.wait(wait)
		d.plan.Evaluations = append(d.plan.Evaluations, e)
		if !r.DryRun {
			d.decides[r.Taint.ID()] = &e
		}
	}
	for i := range rules {
		d.release(&rules[i])
	}
	for _, e := range d.plan.Evaluations {
		d.enforce(e)
	}
	d.account()
	return d.plan
}

// Concerns reports whether any rule has to do with the node.
func (p *RulePlan) Concerns() bool {
	return len(p.Evaluations) > 0 || !p.Change.Empty()
}

func (p *RulePlan) wait(d time.Duration) {
	if d > 0 && (p.Wait == 0 || d < p.Wait) {
		p.Wait = d
	}
}

// ruling is a decision about the rules of one node under way.
type ruling struct {
	node    RuleNode
	now     time.Time
	owned   marks.Owned // as written on the node
	next    marks.Owned // as it is to be
	decides map[marks.TaintID]*Evaluation
	plan    RulePlan
}

// release takes off what a rule owns and does not ask for any more: it is deleted, refused, does not select the node, or
// another one decides about the taint.
func (d *ruling) release(r *Rule) {
	if r.idle() {
		return
	}
	id, owns := d.owned[r.UID]
	if e := d.decides[id]; owns && (e == nil || e.Rule != r) { // else enforce decides
		delete(d.next, r.UID)
		d.letGo(r, id)
	}
	if id != r.Taint.ID() && d.holdsUnwritten(r) {
		d.letGo(r, r.Taint.ID())
	}
}

// letGo takes off a taint that a rule owned, unless another rule decides about it: that keeps it, or takes it off itself.
func (d *ruling) letGo(r *Rule, id marks.TaintID) {
	if e := d.decides[id]; (e == nil || e.Completed) && tainted(d.node.Node, id) && (!r.gates || id != r.Taint.ID()) {
		d.remove(r, id)
	}
}

// holdsUnwritten reports whether a rule holds the node by a taint without its being written down: that is not due yet.
func (d *ruling) holdsUnwritten(r *Rule) bool {
	if d.owner(r.Taint.ID()) != "" || r.Fault != "" {
		return false
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
	switch {
	case e.State == RuleDry || e.Completed:
	case e.Met:
		if e.Tainted {
			d.remove(r, id)
		}
		delete(d.next, r.UID)
		if !r.Continuous {
			d.complete(r)
		}
	case !e.Tainted:
		d.plan.Change.Add = append(d.plan.Change.Add, r.Taint)
		d.act(r, RuleAdd)
		d.own(r)
	case d.owned[r.UID] == id:
	case d.owner(id) != "":
		d.own(r) // from one that is deleted, refused or overruled, or that nobody knows any more
		d.act(r, RuleAdopt)
	default:
		since, seen := d.node.Adopting[r.UID]
		if !seen {
			since = d.now
		}
		due := since.Add(adoptAfter)
		if calm := since.Add(max(0, d.node.Stirred.Sub(since)) + adoptCalm); calm.Before(due) {
			due = calm
		}
		left := due.Sub(d.now)
		if !seen || left <= 0 { // it is said once: both are one event
			d.act(r, RuleAdopt)
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
	d.act(r, RuleRemove)
}

func (d *ruling) complete(r *Rule) {
	if d.plan.Change.Completed == nil {
		d.plan.Change.Completed = map[string]string{}
	}
	d.plan.Change.Completed[r.UID] = r.Name
	d.act(r, RuleComplete)
}

func (d *ruling) act(r *Rule, o RuleOperation) {
	d.plan.Acts = append(d.plan.Acts, RuleAct{Rule: r, Operation: o})
}

// account completes the change by who owns what after it. What a rule that nobody knows is written to own is no reason for a
// write, and goes with the next one once its taint is gone.
func (d *ruling) account() {
	c := &d.plan.Change
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
