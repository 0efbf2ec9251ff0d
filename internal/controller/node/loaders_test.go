package node

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

type remediations []string

func (r *remediations) Consider(name string) { *r = append(*r, name) }

// A decision that needs the evidence of a guard is handed over to the remediation queue.
func TestRemediationsAreHandedOver(t *testing.T) {
	considered := remediations{}
	r, n := &Reconciler{Remediations: &considered}, &corev1.Node{}
	n.Name = "n"
	loaders, want := r.loaders(t.Context(), &decision{node: n}), 0
	for _, g := range decide.Guards() {
		for _, need := range g.Needs {
			if need == decide.NeedProbes {
				continue // of a failure, before it leads to a remediation
			}
			if load := loaders[need]; load == nil {
				t.Errorf("guard %s: nobody loads %s", g.Name, need)
			} else if err := load(decide.Plan{}); !errors.Is(err, decide.ErrStop) {
				t.Errorf("guard %s: %s is loaded beside the remediation queue: %v", g.Name, need, err)
			}
			if want++; len(considered) != want || considered[0] != "n" {
				t.Errorf("guard %s: considered %v", g.Name, considered)
			}
		}
	}
}
