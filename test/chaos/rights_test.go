package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	ruledNode          // those that carry a rule's taint, or that a rule selects
	everyNode
)

// reach is written once, here. A right that is not listed stops no node: it is for what holds a deletion before it is
// decided, for events, for the status of rules.
func (r right) reach() reach {
	switch {
	case r.Resource == "nodes" && r.verb != "delete", r.Resource == "nodes/status",
		r.Resource == "pods" && r.Namespace == namespace && r.verb != "patch",
		r.Resource == "leases" && r.Namespace == namespace:
		return everyNode
	case r.Resource == "nodereadinessrules", r.Resource == "leases": // of the node-readiness-controller
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
	case noNode:
	}
	return false
}

// mute reports whether a controller without the right cannot write a condition, or does not know of the node.
func (r right) mute() bool {
	return r.reach() == everyNode && r.Resource != "pods"
}

// controllersRights is what the controller may do in every run, as the chart's roles have it.
func controllersRights() []rights.Right {
	var cfg config.Config
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
