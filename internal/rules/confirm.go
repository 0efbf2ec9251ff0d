package rules

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// Confirm reads the rules whose taints the plan adds from the API server, before the plan is written and after that. It
// reports whether they exist. A deletion that read a rule before the rule had the finalizer removes it at once, because
// its only precondition is the UID (k8s.io/apiserver pkg/registry/generic/registry, Store.Delete). No later deletion
// can, so a rule that was found after its first taint was written is not read again.
func (r *Rules) Confirm(ctx context.Context, live client.Reader, plan rule.Plan, written bool) (exist bool, err error) {
	if r.DryRun {
		return true, nil
	}
	exist = true
	for _, a := range plan.Actions {
		if a.Operation != rule.Add || r.isConfirmed(a.Rule.UID) {
			continue
		}
		o := &v1alpha1.NodeReadinessRule{}
		err := live.Get(ctx, client.ObjectKey{Name: a.Rule.Name}, o)
		switch {
		case apierr.Of(err, apierr.Read) == apierr.Gone, err == nil && string(o.UID) != a.Rule.UID:
			exist = false
			r.gone(a.Rule.UID)
		case err != nil:
			return false, fmt.Errorf("rule %s: %w", a.Rule.Name, err)
		case written:
			r.confirm(a.Rule.UID)
		default:
			exist = exist && o.DeletionTimestamp == nil && slices.Contains(o.Finalizers, v1alpha1.Finalizer)
		}
	}
	return exist, nil
}

func (r *Rules) isConfirmed(uid string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.confirmed[uid]
}

func (r *Rules) confirm(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.confirmed == nil {
		r.confirmed = map[string]bool{}
	}
	r.confirmed[uid] = true
}

// gone records that a rule does not exist, before the watch shows that. The taints that it owns are then removed.
func (r *Rules) gone(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := *r.set
	next.rules = slices.Clone(next.rules)
	for i := range next.rules {
		if c := &next.rules[i]; c.UID == uid {
			c.Deleting, c.Finalized = true, false
		}
	}
	r.set = &next
}
