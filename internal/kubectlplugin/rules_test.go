package kubectlplugin

import (
	"context"
	"errors"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

func TestWhyRulesAreNotServed(t *testing.T) {
	for state, want := range map[string]string{
		"":          "",
		"serving: ": "",
		"absent: the API server has no NodeReadinessRules": "",
		"standing-back: Lease a/b is held by c: at work":   "NodeReadinessRules are not served (standing-back): Lease a/b is held by c: at work",
	} {
		read := rulesLease(func(context.Context) (*coordinationv1.Lease, error) {
			return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{decide.RulesStateAnnotation: state}}}, nil
		})
		if got := read.trouble(t.Context()); got != want {
			t.Errorf("%q: %q, want %q", state, got, want)
		}
	}
	forbidden := rulesLease(func(context.Context) (*coordinationv1.Lease, error) { return nil, errors.New("forbidden") })
	if got := forbidden.trouble(t.Context()); got != "" {
		t.Error(got)
	}
}
