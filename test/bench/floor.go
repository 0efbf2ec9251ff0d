//go:build bench

package main

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// floor is a bare loop: no queue, no condition, no event, nothing decided twice, nothing remembered. It makes the pod of a node that
// has none, and removes the taint as soon as the pod, or the rule's condition, says so.
type floor struct {
	ctx    context.Context
	client kubernetes.Interface
	writes writes
	// bounded: pods are ended by the writers, and not each at once. The API server holds up an account that asks for thousands of things
	// at a time, and no administrator.
	bounded bool
	// Done by as many at once as there are writers, and nothing of then while there is something of first.
	first, then chan func()

	mu   sync.Mutex
	done map[types.UID]bool
	errs func(error)
}

// writes are what a floor writes of a node that is verified, beside the end of its pod.
type writes struct {
	pod     func(n *corev1.Node) *corev1.Pod
	release func(pod *corev1.Pod) []byte // a merge patch of its node
}

// leastWrites are the smallest that can do it.
func leastWrites() writes {
	return writes{
		pod: func(n *corev1.Node) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "floor-" + n.Name}, Spec: corev1.PodSpec{
				NodeName: n.Name, RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: install.WorkerAccount,
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers:  []corev1.Container{{Name: "worker", Image: install.Image}},
			}}
		},
		release: func(*corev1.Pod) []byte {
			return []byte(`{"metadata": {"labels": {"` + verifiedLabel + `": "true"}}, "spec": {"taints": null}}`)
		},
	}
}

// controllersWrites are those of the controller: its worker pod, and its patch with the record.
func controllersWrites() (writes, error) {
	cfg, err := config.Parse(nil, "the defaults")
	if err != nil {
		return writes{}, err
	}
	builder, err := workerpod.NewBuilder(cfg, install.Namespace, install.Image)
	if err != nil {
		return writes{}, err
	}
	return writes{
		pod: func(n *corev1.Node) *corev1.Pod {
			t := workerpod.Target{Name: n.Name, UID: string(n.UID), BootID: n.Status.NodeInfo.BootID, Gated: true}
			return builder.Verify(t, cfg.Variants()[0], 1, config.SchedulingDirect)
		},
		release: func(pod *corev1.Pod) []byte {
			uid, now, yes := pod.Labels[workerpod.LabelNodeUID], time.Now(), true
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Spec.NodeName, UID: types.UID(uid)}}
			return marks.Change{Gate: marks.GateOpen, Label: &yes, Record: marks.Record{
				NodeUID: uid, BootID: pod.Annotations[workerpod.AnnotationBootID], Sequence: 1,
				LastOutcome: attempt.Passed, LastTime: &now, DurationMs: 1000, VerifiedTime: &now,
			}}.Patch(n, cfg.Vocabulary())
		},
	}, nil
}

func newFloor(ctx context.Context, client kubernetes.Interface, w writes, nodes int, errs func(error)) *floor {
	f := &floor{ctx: ctx, client: client, writes: w, first: make(chan func(), nodes), then: make(chan func(), nodes), done: map[types.UID]bool{}, errs: errs}
	for range writers {
		go func() {
			for f.write() {
			}
		}()
	}
	return f
}

// write does one thing; false once the turn has ended.
func (f *floor) write() bool {
	select {
	case do := <-f.first:
		do()
		return true
	default:
	}
	select {
	case do := <-f.first:
		do()
	case do := <-f.then:
		do()
	case <-f.ctx.Done():
		return false
	}
	return true
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
func (f *floor) start(ctx context.Context, n *corev1.Node) error {
	_, err := f.client.CoreV1().Pods(install.Namespace).Create(ctx, f.writes.pod(n), metav1.CreateOptions{})
	return err
}

// seeNew has the pod made of a gated node that the watch has not shown before.
func (f *floor) seeNew(n *corev1.Node) {
	gates := func(t corev1.Taint) bool { return t.Key == gatingTaint }
	if slices.ContainsFunc(n.Spec.Taints, gates) && f.once(n.UID) {
		f.then <- func() { f.say(f.start(f.ctx, n)) }
	}
}

// seePod releases the node of a pod that succeeded, and deletes the pod.
func (f *floor) seePod(pod *corev1.Pod) {
	if pod.Status.Phase != corev1.PodSucceeded || pod.DeletionTimestamp != nil || !f.once(pod.UID) {
		return
	}
	end := func() {
		f.release(pod.Spec.NodeName, f.writes.release(pod))
		f.say(f.client.CoreV1().Pods(pod.Namespace).Delete(f.ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	}
	if f.bounded {
		f.first <- end
	} else {
		go end()
	}
}

// seeNode has a node released whose condition is True.
func (f *floor) seeNode(n *corev1.Node, condition corev1.NodeConditionType) {
	if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	}) && f.once(n.UID) {
		f.first <- func() { f.release(n.Name, []byte(`{"spec": {"taints": null}}`)) }
	}
}

func (f *floor) release(node string, patch []byte) {
	_, err := f.client.CoreV1().Nodes().Patch(f.ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	f.say(err)
}

func (f *floor) say(err error) {
	if err != nil && f.ctx.Err() == nil {
		f.errs(err)
	}
}
