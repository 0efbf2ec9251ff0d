package kubectlplugin

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// rulesTrouble says why rules are not served; empty where they are, or where nobody says. Who may not read the Lease in which the
// controller says how they stand is shown the nodes all the same.
func (c *cluster) rulesTrouble(ctx context.Context) string {
	l, err := c.leases.Leases(decide.RulesLeaseNamespace).Get(ctx, decide.RulesLease, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return rulesTrouble(l.Annotations[decide.RulesStateAnnotation])
}

func rulesTrouble(annotation string) string {
	state, why, _ := strings.Cut(annotation, ": ")
	if state == "" || state == string(decide.RulesServing) || state == string(decide.RulesAbsent) {
		return ""
	}
	return "NodeReadinessRules are not served (" + state + "): " + why
}
