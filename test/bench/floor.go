package main

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// floor is the least that can be done: no queue, no condition, no event, nothing decided twice, nothing remembered. It makes
// the pod of a node as soon as the node is there, and removes the taint as soon as the pod, or the rule's condition, says so.
type floor struct {
	ctx    context.Context
	client kubernetes.Interface
	label  string

	mu   sync.Mutex
	done map[types.UID]bool
	work chan string // nodes to release, for a rule
	errs func(error)
}

func newFloor(ctx context.Context, client kubernetes.Interface, label string, errs func(error)) *floor {
	return &floor{ctx: ctx, client: client, label: label, done: map[types.UID]bool{}, errs: errs}
}

// once reports whether nothing was done about the object yet.
func (f *floor) once(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.done[uid]
	f.done[uid] = true
	return !was
}

// start creates a node's pod, bound to it.
func (f *floor) start(ctx context.Context, node string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "floor-" + node}, Spec: corev1.PodSpec{
		NodeName: node, RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: install.WorkerAccount,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers:  []corev1.Container{{Name: "worker", Image: install.Image}},
	}}
	_, err := f.client.CoreV1().Pods(install.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// seePod releases the node of a pod that succeeded, and deletes the pod.
func (f *floor) seePod(pod *corev1.Pod) {
	if pod.Status.Phase != corev1.PodSucceeded || pod.DeletionTimestamp != nil || !f.once(pod.UID) {
		return
	}
	go func() {
		f.release(pod.Spec.NodeName, map[string]string{f.label: "true"})
		f.say(f.client.CoreV1().Pods(pod.Namespace).Delete(f.ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	}()
}

// seeNode has a node released whose condition is True.
func (f *floor) seeNode(n *corev1.Node, condition corev1.NodeConditionType) {
	if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	}) && f.once(n.UID) {
		f.work <- n.Name
	}
}

// releaseAll releases nodes as they come, as many at once as there are writers.
func (f *floor) releaseAll(nodes int) {
	f.work = make(chan string, nodes)
	for range writers {
		go func() {
			for {
				select {
				case name := <-f.work:
					f.release(name, nil)
				case <-f.ctx.Done():
					return
				}
			}
		}()
	}
}

func (f *floor) release(node string, labels map[string]string) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"taints": nil}})
	if err == nil {
		_, err = f.client.CoreV1().Nodes().Patch(f.ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	f.say(err)
}

func (f *floor) say(err error) {
	if err != nil && f.ctx.Err() == nil {
		f.errs(err)
	}
}
