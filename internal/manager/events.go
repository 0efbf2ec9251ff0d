package manager

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/event"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	"github.com/kube-node-ready/kube-node-ready/internal/nodepool"
)

// emitter also emits events on objects that are not nodes.
type emitter struct{ *event.Recorder }

func newEvents(mgr ctrl.Manager, c client.Client, counters *metrics.Counters) (emitter, error) {
	r := event.New(c.Create, counters.EventDropped)
	return emitter{r}, mgr.Add(r)
}

// EmitRule queues an event on the rule.
func (e emitter) EmitRule(r *v1alpha1.NodeReadinessRule, at time.Time, what decide.Event) {
	of := corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: r.Name, UID: r.UID}
	e.EmitOn(of, at, what)
}

// emitPool queues an event on the NodePool.
func (e emitter) emitPool(p decide.NodePool, what decide.Event) {
	group, kind := nodepool.Kind.GroupVersion().String(), nodepool.Kind.Kind
	of := corev1.ObjectReference{APIVersion: group, Kind: kind, Name: p.Name, UID: types.UID(p.UID)}
	e.EmitOn(of, time.Now(), what)
}
