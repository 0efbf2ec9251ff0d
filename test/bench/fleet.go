//go:build bench

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// writers is how many kubelets register at once where all nodes come together.
const writers = 32

// fleet is the nodes of one turn, and when each arrived and was released.
type fleet struct {
	client kubernetes.Interface
	names  []string
	taint  corev1.Taint
	label  string // that a released node has beside lacking the taint; "" for none
	// large: the nodes are as large as those of a cluster in use, 9 KiB each: two dozen labels, and fifty images.
	large bool

	mu                sync.Mutex
	arrived, released map[string]time.Time
	all               chan struct{} // closed once every node is released
}

func newFleet(client kubernetes.Interface, prefix string, nodes int, taint, label string) *fleet {
	f := &fleet{client: client, taint: corev1.Taint{Key: taint, Value: "true", Effect: corev1.TaintEffectNoSchedule}, label: label,
		arrived: map[string]time.Time{}, released: map[string]time.Time{}, all: make(chan struct{})}
	for i := range nodes {
		f.names = append(f.names, fmt.Sprintf("%s-%05d", prefix, i))
	}
	return f
}

// node is as a kubelet registers it.
func (f *fleet) node(name string) *corev1.Node {
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110")}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"bench": "true",
			corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}},
		Spec:   corev1.NodeSpec{Taints: []corev1.Taint{f.taint}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room, Conditions: heartbeat(), NodeInfo: corev1.NodeSystemInfo{BootID: "boot-" + name}},
	}
	if f.large {
		enlarge(n)
	}
	return n
}

// enlarge adds what a cloud, an autoscaler and a kubelet in use say of a node.
func enlarge(n *corev1.Node) {
	zone := "region-1" + n.Name[len(n.Name)-1:]
	n.Spec.ProviderID = "cloud:///" + zone + "/instance-" + n.Name
	n.Labels[corev1.LabelTopologyZone], n.Labels[corev1.LabelTopologyRegion] = zone, "region-1"
	n.Labels[corev1.LabelInstanceTypeStable] = "large-16"
	for i := range 16 {
		n.Labels[fmt.Sprintf("cloud.example.com/property-%d", i)] = fmt.Sprintf("value-%d", len(n.Name)%3)
	}
	for i := range 50 {
		image := fmt.Sprintf("registry.example.com/team-%d/service", i)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: 50 << 20,
			Names: []string{fmt.Sprintf("%s@sha256:%064d", image, i), fmt.Sprintf("%s:v1.%d.0", image, i)}})
	}
}

// booted is since when the conditions of all nodes are as they are.
var booted = metav1.Now()

// heartbeat is what a kubelet says of its node: from one to the next, only the time changes.
func heartbeat() []corev1.NodeCondition {
	now := metav1.Now()
	say := func(t corev1.NodeConditionType, s corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: t, Status: s, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: booted}
	}
	return []corev1.NodeCondition{
		say(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		say(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		say(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		say(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
	}
}

// arrive notes that a node's time begins.
func (f *fleet) arrive(name string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrived[name] = at
}

// see notes what the watch shows of a node.
func (f *fleet) see(n *corev1.Node) {
	if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == f.taint.Key }) {
		return
	}
	if _, ok := n.Labels[f.label]; !ok && f.label != "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.arrived[n.Name]; !ok || !f.released[n.Name].IsZero() {
		return
	}
	f.released[n.Name] = time.Now()
	if len(f.released) == len(f.names) {
		close(f.all)
	}
}

// register lets the nodes come: rate a second, or, if that is 0, as fast as the writers can.
func (f *fleet) register(ctx context.Context, rate float64, then func(ctx context.Context, n *corev1.Node) error) error {
	return f.each(ctx, rate, func(ctx context.Context, name string) error {
		f.arrive(name, time.Now())
		n, err := f.client.CoreV1().Nodes().Create(ctx, f.node(name), metav1.CreateOptions{})
		if err != nil || then == nil {
			return err
		}
		return then(ctx, n)
	})
}

// each does something for every node: rate a second, or, if that is 0, for as many at once as there are writers.
func (f *fleet) each(ctx context.Context, rate float64, do func(ctx context.Context, name string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var tick <-chan time.Time
	if rate > 0 {
		t := time.NewTicker(time.Duration(float64(time.Second) / rate))
		defer t.Stop()
		tick = t.C
	} else {
		group.SetLimit(writers)
	}
	for _, name := range f.names {
		if tick != nil {
			select {
			case <-tick:
			case <-ctx.Done():
			}
		}
		group.Go(func() error { return do(ctx, name) })
	}
	return group.Wait()
}

// patchStatus is a kubelet's, or an agent's, write of conditions.
func (f *fleet) patchStatus(ctx context.Context, name string, conditions ...corev1.NodeCondition) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err == nil {
		_, err = f.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	return err
}

// await returns once every node is released, or after the limit.
func (f *fleet) await(ctx context.Context) error {
	select {
	case <-f.all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(limit):
		f.mu.Lock()
		defer f.mu.Unlock()
		return fmt.Errorf("after %s only %d of %d nodes are released", limit, len(f.released), len(f.names))
	}
}

// waits are how long each node was held, in seconds, sorted; total is from the first arrival to the last release.
func (f *fleet) waits() (waits []float64, total float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var first, last time.Time
	for name, at := range f.released {
		from := f.arrived[name]
		waits = append(waits, at.Sub(from).Seconds())
		if first.IsZero() || from.Before(first) {
			first = from
		}
		if at.After(last) {
			last = at
		}
	}
	slices.Sort(waits)
	return waits, last.Sub(first).Seconds()
}

// remove deletes the nodes, and what is left of pods.
func (f *fleet) remove(ctx context.Context) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if err := f.each(ctx, 0, func(ctx context.Context, name string) error {
		err := f.client.CoreV1().Nodes().Delete(ctx, name, now)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}); err != nil {
		return err
	}
	pods, err := f.client.CoreV1().Pods(install.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		if err := f.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, now); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// watch shows nodes and worker pods until ctx ends. It returns once what is there was shown.
func watch(ctx context.Context, client kubernetes.Interface, onNode func(*corev1.Node), onPod ...func(*corev1.Pod)) error {
	f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(func(o any) (any, error) {
		if n, ok := o.(*corev1.Node); ok {
			n.Status.Images, n.ManagedFields = nil, nil // they take gigabytes, and nobody looks at them
		}
		return o, nil
	}))
	if _, err := f.Core().V1().Nodes().Informer().AddEventHandler(shown(onNode)); err != nil {
		return err
	}
	pods := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(install.Namespace))
	for _, on := range onPod {
		if _, err := pods.Core().V1().Pods().Informer().AddEventHandler(shown(on)); err != nil {
			return err
		}
	}
	for _, f := range []informers.SharedInformerFactory{f, pods} {
		f.Start(ctx.Done())
		for kind, ok := range f.WaitForCacheSync(ctx.Done()) {
			if !ok {
				return fmt.Errorf("watch %s: %w", strings.TrimPrefix(kind.String(), "*"), context.Cause(ctx))
			}
		}
	}
	return nil
}

func shown[T any](on func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { on(o.(T)) }, UpdateFunc: func(_, o any) { on(o.(T)) }}
}
