//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// podWatch observes every worker pod of the whole run. So it notices what must never happen, whenever it happens: a
// second worker on one node at one time, or an attempt that is made twice.
type podWatch struct {
	mu         sync.Mutex
	seen       map[string]*workerPod // by UID
	violations []string
}

type workerPod struct {
	name, node, nodeUID, attempt, config string
	created                              time.Time
	devices                              string // what its worker asks for, and its claims
	started, ended                       bool
}

func watchPods(ctx context.Context, client kubernetes.Interface) *podWatch {
	w := &podWatch{seen: map[string]*workerPod{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "app.kubernetes.io/component=worker" }))
	informer := factory.Core().V1().Pods().Informer()
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { w.observe(obj.(*corev1.Pod), false) },
		UpdateFunc: func(_, obj any) { w.observe(obj.(*corev1.Pod), false) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			w.observe(obj.(*corev1.Pod), true)
		},
	})
	factory.Start(ctx.Done())
	return w
}

func (w *podWatch) observe(pod *corev1.Pod, gone bool) {
	if pod.Labels["node-ready/purpose"] != "verify" {
		return // a control probe runs on a node that has no verification of its own
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.seen[string(pod.UID)]
	if p == nil {
		p = &workerPod{
			name: pod.Name, node: pod.Annotations["node-ready/node"], nodeUID: pod.Labels["node-ready/node-uid"],
			attempt: pod.Annotations["node-ready/attempt"], created: pod.CreationTimestamp.Time, devices: devices(pod),
		}
		for _, env := range pod.Spec.Containers[0].Env {
			if env.Name == "KUBE_NODE_READY_CONFIG" {
				p.config = env.Value
			}
		}
		for _, other := range w.seen {
			if other.nodeUID != p.nodeUID {
				continue
			}
			if !other.ended {
				w.violations = append(w.violations, fmt.Sprintf("%s was created while %s was alive on the same node", p.name, other.name))
			}
			if other.name == p.name { // a name stands for one attempt at one node
				w.violations = append(w.violations, fmt.Sprintf("attempt %s of node %s was made twice: %s", p.attempt, p.node, p.name))
			}
		}
		w.seen[string(pod.UID)] = p
	}
	for _, status := range pod.Status.ContainerStatuses {
		p.started = p.started || status.State.Running != nil || status.State.Terminated != nil
		// The kubelet reports the container's end before the pod's.
		p.ended = p.ended || status.State.Terminated != nil
	}
	// A pod that is deleted before its container started will not start it any more.
	p.ended = p.ended || !p.started && pod.DeletionTimestamp != nil
	p.ended = p.ended || gone || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// devices lists the extended resources and the claims that a worker asks for.
func devices(pod *corev1.Pod) string {
	var names []string
	for name, quantity := range pod.Spec.Containers[0].Resources.Limits {
		if strings.Contains(string(name), "/") {
			names = append(names, quantity.String()+" "+string(name))
		}
	}
	for _, c := range pod.Spec.ResourceClaims {
		names = append(names, "claim "+c.Name)
	}
	return strings.Join(names, ", ")
}

// of are the node's worker pods since a moment, oldest first.
func (w *podWatch) of(node string, since time.Time) []workerPod {
	w.mu.Lock()
	defer w.mu.Unlock()
	var pods []workerPod
	for _, p := range w.seen {
		if p.node == node && !p.created.Before(since.Truncate(time.Second)) {
			pods = append(pods, *p)
		}
	}
	slices.SortFunc(pods, func(a, b workerPod) int { return a.created.Compare(b.created) })
	return pods
}

// awaitRunning waits for a worker of the node that runs at this moment.
func (w *podWatch) awaitRunning(ctx context.Context, t *testing.T, limit time.Duration, node string, since time.Time) workerPod {
	t.Helper()
	var running workerPod
	eventually(ctx, t, limit, "a worker runs on "+node, func() error {
		for _, p := range w.of(node, since) {
			if p.started && !p.ended {
				running = p
				return nil
			}
		}
		return fmt.Errorf("none does")
	})
	return running
}

// check fails the case if anything that must never happen has happened by now.
func (w *podWatch) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, violation := range w.violations {
		t.Error(violation)
	}
	w.violations = nil
}
