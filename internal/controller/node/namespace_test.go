package node_test

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
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// elected starts a controller process that has won the election of the world's Lease, and shows it the nodes.
func elected(w *world.World) *world.Leader {
	w.Helper()
	l := w.Lead()
	l.Nodes.View.Namespaces = &controller.Namespaces{Reader: l.Live(), Writer: l.Writer(),
		Lease:     client.ObjectKey{Namespace: w.Namespace, Name: "lease"},
		Namespace: w.PodNamespace(), Seconds: workerpod.LongestSeconds(w.Config)}
	w.Must(l.Nodes.View.Namespaces.Begin(w.Ctx, w.Clock.Now))
	l.Deliver()
	return l
}

// workersIn counts the worker pods in a namespace.
func workersIn(w *world.World, namespace string) int {
	w.Helper()
	var list corev1.PodList
	workers := client.MatchingLabels{workerpod.LabelComponent: workerpod.Component}
	w.Must(world.API.List(w.Ctx, &list, client.InNamespace(namespace), workers))
	return len(list.Items)
}

// A leader with another worker.namespace does not see the previous leader's workers. It starts no worker beside them
// before their deadline, however often the leader is replaced.
func TestWorkerNamespaceIsChanged(t *testing.T) {
	w := world.Begin(t, "")
	w.Exit = func(*corev1.Pod) int { return world.Stays }
	w.Create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "lease"}})
	next := w.Namespace + "-next"
	w.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: next}})
	w.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: next, Name: "kube-node-ready-worker"}})

	first := elected(w)
	n := w.Node("n")
	first.Deliver()
	first.ReconcileAll()
	pods := w.Pods(n.Name)
	if len(pods) != 1 {
		t.Fatalf("%d workers, want one", len(pods))
	}
	deadline := time.Duration(*pods[0].Spec.ActiveDeadlineSeconds) * time.Second

	w.Configure(`{"worker": {"namespace": "` + next + `", "startTimeoutSeconds": 1, "timeoutSeconds": 1}}`)
	changed := w.Clock.Now()
	for range 3 { // leaders that are replaced one after the other
		l := elected(w)
		for range 2 { // a minute apart at most
			w.Clock.Advance(l.ReconcileAll())
		}
	}
	if count := workersIn(w, next); count > 0 || len(w.Pods(n.Name)) != 1 {
		t.Fatalf("%d workers beside the first", count)
	}
	_, f := w.Get(n.Name)
	if f.Condition == nil || f.Condition.Reason != marks.ReasonVerifying ||
		!strings.Contains(f.Condition.Message, w.Namespace+"/"+pods[0].Name) {
		t.Errorf("condition %+v, want the name of the first worker", f.Condition)
	}
	if w.Events[n.Name+" "+decide.EventWorkerOrphaned.Name] == nil {
		t.Errorf("events %v", w.Events)
	}
	l := elected(w)
	for w.Clock.Now().Before(changed.Add(deadline)) {
		w.Clock.Advance(min(l.ReconcileAll(), changed.Add(deadline).Sub(w.Clock.Now())))
	}
	w.Terminate(&pods[0], 1) // by its kubelet, at its deadline
	for workersIn(w, next) == 0 && w.Clock.Now().Before(changed.Add(deadline+time.Hour)) {
		w.Clock.Advance(l.ReconcileAll())
	}
	if waited := w.Clock.Now().Sub(changed); waited < deadline || waited > deadline+3*time.Minute {
		t.Errorf("the second worker started %s after the change, and the deadline is %s", waited, deadline)
	}
	lease := &coordinationv1.Lease{}
	w.Must(world.API.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: "lease"}, lease))
	var kept decide.WorkerNamespaces
	w.Must(json.Unmarshal([]byte(lease.Annotations[controller.AnnotationWorkers]), &kept))
	if kept.Namespace != next || len(kept.Former) != 1 || kept.Former[0].Namespace != w.Namespace {
		t.Errorf("the Lease says %+v", kept)
	}
}
