package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
)

// patched is a client whose patches have this answer.
type patched struct {
	client.Client
	answer error
}

func (p patched) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return p.answer
}

// noted are the events that were emitted.
type noted []decide.Event

func (n *noted) Emit(_ *corev1.Node, _ time.Time, e decide.Event) { *n = append(*n, e) }

// A record is counted, and its events are emitted, only if the API server accepted it. Otherwise each try would count
// as a pass.
func TestARefusedRecordIsNotCounted(t *testing.T) {
	conflict := apierrors.NewConflict(corev1.Resource("nodes"), "n", errors.New("changed"))
	for name, c := range map[string]struct {
		answer error
		counts float64
	}{"taken": {nil, 1}, "refused": {conflict, 0}} {
		t.Run(name, func(t *testing.T) {
			r, _ := reconciler(t)
			events := &noted{}
			r.Nodes, r.Events, r.Counters = patched{answer: c.answer}, events, metrics.NewCounters(nil, nil)
			now := time.Now()
			in := decide.Input{Config: r.View.Config, Profile: r.View.Config.For(nil), Node: marks.Facts{Name: "n", UID: "u", Gated: true}}
			n := &corev1.Node{}
			n.Name, n.UID, n.ResourceVersion = "n", "u", "1"
			plan := decide.PodRefused(in, 1, attempt.ReasonPodRefused, "a quota", now)
			if err := r.record(t.Context(), decision{node: n, in: in}, plan); !errors.Is(err, c.answer) {
				t.Errorf("%v, want %v", err, c.answer)
			}
			registry := prometheus.NewPedanticRegistry()
			registry.MustRegister(r.Counters.Collectors()...)
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			total := 0.0
			for _, f := range families {
				if f.GetName() == "kube_node_ready_verifications_total" {
					for _, m := range f.GetMetric() {
						total += m.GetCounter().GetValue()
					}
				}
			}
			if total != c.counts || (len(*events) > 0) != (c.counts > 0) {
				t.Errorf("%v attempts are counted, events %v", total, *events)
			}
		})
	}
}
