package controller

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world/termination"
)

// clock is a clock that is set by hand.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func (c *clock) pass(d time.Duration) { c.at = c.at.Add(d) }

// cache is as much of an informer's cache as a View reads.
type cache struct {
	mu    sync.Mutex // for tests that change it while it is read
	nodes []corev1.Node
	pods  []corev1.Pod
	lists int
	err   error // of a list
}

// show puts a pod into the cache, in place of one of its name.
func (c *cache) show(p *corev1.Pod) {
	c.hide(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods = append(c.pods, *p.DeepCopy())
}

// hide removes a pod from the cache.
func (c *cache) hide(p *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods = slices.DeleteFunc(c.pods, func(have corev1.Pod) bool { return have.Name == p.Name && have.Namespace == p.Namespace })
}

func (c *cache) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch into := into.(type) {
	case *corev1.Node:
		for i := range c.nodes {
			if c.nodes[i].Name == key.Name {
				c.nodes[i].DeepCopyInto(into)
				return nil
			}
		}
	case *corev1.Pod:
		for i := range c.pods {
			if client.ObjectKeyFromObject(&c.pods[i]) == key {
				c.pods[i].DeepCopyInto(into)
				return nil
			}
		}
	}
	return apierrors.NewNotFound(corev1.Resource("nodes"), key.Name)
}

func (c *cache) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists++
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	switch l := list.(type) {
	case *corev1.NodeList:
		l.Items = c.nodes
	case *corev1.PodList:
		l.Items = nil
		for _, p := range c.pods {
			matches := p.Namespace == o.Namespace && (o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(p.Labels)))
			if o.FieldSelector != nil {
				for _, r := range o.FieldSelector.Requirements() {
					switch r.Field {
					case indexOccupies:
						matches = matches && workerpod.Observe(&p).Occupies
						continue
					case indexAltered:
						host, _ := workerpod.AlteredProbe(&p, p.Namespace)
						matches = matches && host == r.Value
						continue
					}
					label := map[string]string{indexNodeUID: workerpod.LabelNodeUID, indexGroup: workerpod.LabelProbeGroup}[r.Field]
					matches = matches && label != "" && p.Labels[label] == r.Value
				}
			}
			if matches {
				l.Items = append(l.Items, p)
			}
		}
	}
	return c.err
}

// view is a View on an empty cache, with the default configuration and these changes, and its clock.
func view(t *testing.T, change ...func(*config.Config)) (*View, *cache, *clock) {
	t.Helper()
	cfg := &config.Config{}
	cfg.SetDefaults()
	for _, f := range change {
		f(cfg)
	}
	b, err := workerpod.NewBuilder(cfg, "ns", "img:1")
	if err != nil {
		t.Fatal(err)
	}
	c, at := &cache{}, &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	return &View{Config: cfg, Cache: c, Builder: b, Tracker: NewTracker(at.now, false),
		OwnerTerminating: func(*corev1.Node, marks.Facts) string { return "" }}, c, at
}

// node is a gated node.
func node(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}, Annotations: map[string]string{}}}
	n.Spec.Taints = []corev1.Taint{{Key: config.DefaultTaintKey, Effect: corev1.TaintEffectNoSchedule}}
	n.Status.NodeInfo.BootID = "b1"
	for _, f := range change {
		f(n)
	}
	return n
}

func target(n *corev1.Node) workerpod.Target {
	return workerpod.Target{Name: n.Name, UID: string(n.UID), BootID: n.Status.NodeInfo.BootID, Gated: true}
}

// worker is the pod of a node's attempt.
func worker(v *View, n *corev1.Node, number int32, change ...func(*corev1.Pod)) *corev1.Pod {
	p := v.Builder.Verify(target(n), v.Config.For(n.Labels), number, config.SchedulingDirect)
	p.UID = types.UID("pod-" + p.Name)
	p.Status.Phase = corev1.PodPending
	for _, f := range change {
		f(p)
	}
	return p
}

// amid are a worker and a control probe on the node, among pods that are not ours or another node's.
func amid(v *View, n *corev1.Node) []corev1.Pod {
	forged := worker(v, n, 2)
	forged.Name = "verify-by-hand"
	elsewhere := worker(v, n, 3)
	elsewhere.Namespace = "default"
	probe := v.Builder.Probe(target(n), v.Config.For(nil), "uid-m/1", "g")
	return []corev1.Pod{*worker(v, n, 1), *forged, *elsewhere, *probe, *worker(v, node("m"), 1)}
}

func running(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: workerpod.Container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

func exited(code int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodSucceeded
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: workerpod.Container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Message: termination.Message(p.Annotations[workerpod.AnnotationNode], int(code))}}}}
	}
}

func imageMissing(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: workerpod.Container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}
}

func unschedulable(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no room"}}
}

// of is the input of a decision about a node of which only the name matters.
func of(name, uid string) decide.Input {
	return decide.Input{Node: marks.Facts{Name: name, UID: uid}}
}

// terminating is a pod whose deletion was asked for.
func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
