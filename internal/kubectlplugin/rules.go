package kubectlplugin

import (
	"context"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// rulesLease reads the Lease in which the controller says how NodeReadinessRules stand.
type rulesLease func(ctx context.Context) (*coordinationv1.Lease, error)

func newRulesLease(leases coordinationclient.CoordinationV1Interface) rulesLease {
	return func(ctx context.Context) (*coordinationv1.Lease, error) {
		return leases.Leases(decide.RulesLeaseNamespace).Get(ctx, decide.RulesLease, metav1.GetOptions{})
	}
}

// trouble says why rules are not served; empty where they are, or where nobody says. Who may not read the Lease is shown
// the nodes all the same.
func (read rulesLease) trouble(ctx context.Context) string {
	if read == nil {
		return ""
	}
	l, err := read(ctx)
	if err != nil {
		return ""
	}
	state, why, _ := strings.Cut(l.Annotations[decide.RulesStateAnnotation], ": ")
	if state == "" || state == string(decide.RulesServing) || state == string(decide.RulesAbsent) {
		return ""
	}
	return "NodeReadinessRules are not served (" + state + "): " + why
}
