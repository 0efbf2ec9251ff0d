package effects

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// elected starts a controller process that has won the election of the world's Lease, and shows it the nodes.
func (w *world) elected() *leader {
	w.Helper()
	l := w.leads()
	l.nodes.View.Namespaces = &controller.Namespaces{Reader: l.live(), Writer: l.writer(),
		Lease:     client.ObjectKey{Namespace: w.ns, Name: "lease"},
		Namespace: w.podNamespace(), Seconds: workerpod.LongestSeconds(w.cfg)}
	w.must(l.nodes.View.Namespaces.Begin(w.ctx, w.clock.Now))
	l.show()
	return l
}

// workersIn counts the worker pods in a namespace.
func (w *world) workersIn(namespace string) int {
	w.Helper()
	var list corev1.PodList
	workers := client.MatchingLabels{workerpod.LabelComponent: workerpod.Component}
	w.must(api.List(w.ctx, &list, client.InNamespace(namespace), workers))
	return len(list.Items)
}

// A leader with another worker.namespace does not see the workers of the leader before it. It starts none beside
// them, however often it is replaced, until the deadline that they were given.
func TestWorkerNamespaceIsChanged(t *testing.T) {
	w := begin(t, "")
	w.exit = func(*corev1.Pod) int { return stays }
	w.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "lease"}})
	next := w.ns + "-next"
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: next}})
	w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: next, Name: "kube-node-ready-worker"}})

	first := w.elected()
	n := w.node("n")
	first.show()
	first.pass()
	pods := w.pods(n.Name)
	if len(pods) != 1 {
		t.Fatalf("%d workers, want one", len(pods))
	}
	deadline := time.Duration(*pods[0].Spec.ActiveDeadlineSeconds) * time.Second

	w.configure(`{"worker": {"namespace": "` + next + `", "startTimeoutSeconds": 1, "timeoutSeconds": 1}}`)
	changed := w.clock.Now()
	for range 3 { // leaders that are replaced one after the other
		l := w.elected()
		for range 2 { // a minute apart at most
			w.clock.advance(l.pass())
		}
	}
	if count := w.workersIn(next); count > 0 || len(w.pods(n.Name)) != 1 {
		t.Fatalf("%d workers beside the first", count)
	}
	_, f := w.get(n.Name)
	if f.Condition == nil || f.Condition.Reason != marks.ReasonVerifying ||
		!strings.Contains(f.Condition.Message, w.ns+"/"+pods[0].Name) {
		t.Errorf("condition %+v, want the name of the first worker", f.Condition)
	}
	if w.events[n.Name+" "+decide.EventWorkerOrphaned.Name] == nil {
		t.Errorf("events %v", w.events)
	}
	l := w.elected()
	for w.clock.Now().Before(changed.Add(deadline)) {
		w.clock.advance(min(l.pass(), changed.Add(deadline).Sub(w.clock.Now())))
	}
	w.terminate(&pods[0], 1) // by its kubelet, at its deadline
	for w.workersIn(next) == 0 && w.clock.Now().Before(changed.Add(deadline+time.Hour)) {
		w.clock.advance(l.pass())
	}
	if waited := w.clock.Now().Sub(changed); waited < deadline || waited > deadline+3*time.Minute {
		t.Errorf("the second worker started %s after the change, and the deadline is %s", waited, deadline)
	}
	lease := &coordinationv1.Lease{}
	w.must(api.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: "lease"}, lease))
	var kept decide.WorkerNamespaces
	w.must(json.Unmarshal([]byte(lease.Annotations[controller.AnnotationWorkers]), &kept))
	if kept.Namespace != next || len(kept.Former) != 1 || kept.Former[0].Namespace != w.ns {
		t.Errorf("the Lease says %+v", kept)
	}
}
