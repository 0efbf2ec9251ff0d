package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rights"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// right is one verb of a right that the controller has.
type right struct {
	rights.Right
	verb string
}

func (r right) String() string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s", r.verb, r.Resource, r.Name, r.Namespace)), " ")
}

// reach is which nodes a missing right concerns.
type reach int

const (
	noNode       reach = iota
	deletingNode       // those whose deletion is decided
	heldNode           // those whose next action is refused
	ruledNode          // those that carry a rule's taint, or that a rule selects
	everyNode
)

// reach is written once, here. A right that is not listed stops no node: it is for what holds a deletion before it is
// decided, for events, for the status of rules.
func (r right) reach() reach {
	switch {
	case r.ofObjects():
		return heldNode
	case r.Resource == "nodes" && r.verb != "delete", r.Resource == "nodes/status",
		r.Resource == "pods" && r.Namespace == namespace && r.verb != "patch",
		r.Resource == "leases" && r.Namespace == namespace:
		return everyNode
	case r.Resource == "nodereadinessrules", r.Resource == "leases": // who serves rules
		return ruledNode
	case r.verb == "delete" && (r.Resource == "nodes" || r.Resource == "nodeclaims"),
		r.Resource == "configmaps": // the ledger
		return deletingNode
	}
	return noNode
}

// concerns reports whether the missing right concerns a node, where there are rules or not.
func (r right) concerns(n *corev1.Node, rules bool) bool {
	switch r.reach() {
	case everyNode:
		return true
	case ruledNode:
		return rules && n.Labels[labelAgent] == "true" || len(ruleTaints(n)) > 0 || n.Annotations[marks.AnnotationRules] != ""
	case deletingNode:
		return recordOf(n).Deletion != nil
	case heldNode:
		return recordOf(n).Held == guardAction
	case noNode:
	}
	return false
}

// guardAction is the guard that holds an action which the API server refuses.
const guardAction = "action"

// mute reports whether a controller without the right cannot write a condition, or does not know of the node.
func (r right) mute() bool {
	return r.reach() == everyNode && r.Resource != "pods"
}

// controllersRights is what the controller may do in every run, as the chart's roles have it.
func controllersRights() []rights.Right {
	var cfg config.Config
	cfg.NodeManagement.Remediation.Actions = []config.Action{{Condition: &config.ConditionAction{}},
		{Object: &config.ObjectAction{Template: objectTemplate()}}, {Delete: &config.DeleteAction{}}}
	cfg.SetDefaults()
	cfg.NodeManagement.DeleteFailedNodes = true
	return rights.Controller(&cfg, namespace, false)
}

// eachRight lists every verb of the rights.
func eachRight(of []rights.Right) (all []right) {
	for _, r := range of {
		for _, verb := range r.Verbs {
			all = append(all, right{r, verb})
		}
	}
	return all
}

// drawnRights are those that may be taken away from any controller: all but those for the objects of actions, which
// refuseObjects draws.
func drawnRights() []right {
	return slices.DeleteFunc(eachRight(controllersRights()), right.ofObjects)
}

// ofObjects reports whether the right is one to the objects of actions.
func (r right) ofObjects() bool { return r.Resource == "configmaps" && r.Namespace == objectsIn }

// rightsToObjects are those to the objects of actions with these verbs.
func rightsToObjects(verbs ...string) []right {
	return slices.DeleteFunc(eachRight(controllersRights()), func(r right) bool {
		return !r.ofObjects() || !slices.Contains(verbs, r.verb)
	})
}

// objectVerbs are the verbs of these rights that are refused together.
var objectVerbs = [][]string{{"create"}, {"get"}, {"delete"}, {"get", "delete"}, {"create", "get", "delete"}}

// refuseObjects draws whether the controller loses rights to the objects of its actions for good, in one of three runs
// that have such an action. It is drawn apart from all else. Without the right to create one the guard "action" holds,
// and the next entry is not tried. Without the others the object of a node that passes stays.
func (s settings) refuseObjects(seed uint64, faults []endless, only []string) []endless {
	rng := rand.New(rand.NewPCG(seed, 13)) //nolint:gosec // no secret
	if !slices.Contains(s.actions, makeObject) || rng.IntN(3) > 0 ||
		len(only) > 0 && !slices.Contains(only, rightsRefused) {
		return faults
	}
	i := slices.IndexFunc(faults, func(e endless) bool { return e.name == rightsRefused })
	if i < 0 {
		i = len(faults)
		faults = append(faults, kindOf(rightsRefused).draw(rng))
	}
	faults[i].rights = append(faults[i].rights, rightsToObjects(objectVerbs[rng.IntN(len(objectVerbs))]...)...)
	return faults
}

// refuseBriefly draws when the controller loses such rights for some seconds, in every run that has such an action.
func (s settings) refuseBriefly(seed uint64, during time.Duration, only []string) []step {
	if !slices.Contains(s.actions, makeObject) || len(only) > 0 {
		return nil
	}
	lost := fault{name: "rights to an action's objects refused for a while", weight: 1,
		do: func(ctx context.Context, w *world, rng *rand.Rand) error {
			w.refuseBriefly(ctx, rightsToObjects(objectVerbs[rng.IntN(len(objectVerbs))]...),
				between(rng, time.Second, 6*time.Second))
			return nil
		}}
	return scheduleOf([]fault{lost}, seed, 15, during, 8*time.Second, nil)
}

// refuseBriefly takes the rights away for so long.
func (w *world) refuseBriefly(ctx context.Context, rights []right, d time.Duration) {
	for _, of := range [][]right{rights, nil} {
		w.mu.Lock()
		w.briefly = of
		w.mu.Unlock()
		w.check.refusesBriefly(of)
		w.persist(w.regrant)
		pause(ctx, d)
	}
}

// regrant writes the roles without all that is refused now.
func (w *world) regrant() error {
	w.granting.Lock()
	defer w.granting.Unlock()
	w.mu.Lock()
	refused := slices.Clone(w.briefly)
	for _, e := range w.endless {
		refused = append(refused, e.rights...)
	}
	w.mu.Unlock()
	return w.grant(w.ctx, refused)
}

// refusesBriefly notes the rights to objects that are refused for a while; none where that is over.
func (c *checker) refusesBriefly(rights []right) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(rights) == 0 {
		c.granted = time.Now()
		return
	}
	c.briefly, c.granted = rights, time.Time{}
}

// refusesForGood reports whether a fault that has begun refuses one of the verbs on the objects of actions.
func (c *checker) refusesForGood(verbs ...string) bool {
	return slices.ContainsFunc(c.endless, func(e endless) bool { return refusesAny(e.rights, verbs) })
}

// refuses reports whether one of them is refused now, or was until a moment ago.
func (c *checker) refuses(ch change, verbs ...string) bool {
	return c.refusesForGood(verbs...) ||
		refusesAny(c.briefly, verbs) && (c.granted.IsZero() || ch.at.Sub(c.granted) < underWay)
}

func refusesAny(rights []right, verbs []string) bool {
	return slices.ContainsFunc(rights, func(r right) bool { return r.ofObjects() && slices.Contains(verbs, r.verb) })
}

// grant writes the roles without the rights that are refused.
func (s *stage) grant(ctx context.Context, refused []right) (err error) {
	left := controllersRights()
	for i, r := range left {
		left[i].Verbs = slices.DeleteFunc(r.Verbs, func(verb string) bool {
			return slices.ContainsFunc(refused, func(f right) bool { return f.verb == verb && f.Right.String() == r.String() })
		})
	}
	for _, o := range install.Roles(controllerAccount, left) {
		err = errors.Join(err, s.api.Update(ctx, o))
	}
	return err
}
