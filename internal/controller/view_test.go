package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

func gpu(c *config.Config) {
	c.Profiles = []config.Profile{{Name: "gpu", NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "true"}}, DNSTestDomains: []string{"example.com"},
		Taints: []marks.Taint{{Key: "gpu/unverified", Effect: corev1.TaintEffectNoSchedule}}}}
}

// The labels select the profile and its checks. The taint of any profile gates a node.
func TestObserve(t *testing.T) {
	v, _, _ := view(t, gpu)
	plain, labelled := v.Observe(node("n")), v.Observe(node("n", func(n *corev1.Node) { n.Labels["gpu"] = "true" }))
	if !plain.Node.Gated || !labelled.Node.Gated || !plain.Selected {
		t.Errorf("%+v %+v", plain.Node, labelled.Node)
	}
	if labelled.Profile.Profile != "gpu" || labelled.Checks == plain.Checks || labelled.Checks != v.Builder.Checks("gpu") || labelled.Profile.Taints[0].Key != "gpu/unverified" {
		t.Errorf("%+v", labelled)
	}
	foreign := v.Observe(node("n", func(n *corev1.Node) { n.Spec.Taints[0].Key = "gpu/unverified" }))
	if !foreign.Node.Gated || foreign.Profile.Profile != "" {
		t.Errorf("a taint of a profile that its labels do not select: %+v", foreign.Node)
	}
}

func TestGatherFindsTheNodesOwnPods(t *testing.T) {
	v, c, _ := view(t)
	n := node("n")
	c.pods = amid(v, n)
	in, err := v.Gather(t.Context(), n)
	if err != nil || len(in.Pods) != 2 || in.Pods[0].Attempt.Number != 1 || in.Pods[1].Subject != "uid-m/1" {
		t.Errorf("%+v, %v", in.Pods, err)
	}
	probes, err := v.Probes(t.Context(), "g")
	if err != nil || len(probes) != 1 || probes[0].Node != "n" {
		t.Errorf("%+v, %v", probes, err)
	}
	if probes, _ = v.Probes(t.Context(), "other"); len(probes) != 0 {
		t.Errorf("of another group: %+v", probes)
	}
}

// server is an API server that changes between its answers.
type server struct {
	*cache
	answers []string
	then    func(answers int)
}

func (s *server) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	err := s.cache.Get(ctx, key, into, opts...)
	s.answers = append(s.answers, key.Name)
	if s.then != nil {
		s.then(len(s.answers))
	}
	return err
}

// TestFresh: the pods are read before the node, and both once more if the node has another record by then.
func TestFresh(t *testing.T) {
	for name, test := range map[string]struct {
		gone     bool                                           // the worker without a result
		then     func(n *corev1.Node, answers int) *corev1.Node // the node after so many answers
		want     []string                                       // what is read: the worker, the node
		err      error
		sequence int32
		pods     int
	}{
		"nothing changes": {want: []string{"worker", "n"}, pods: 2},
		"its record is another one": {then: func(n *corev1.Node, _ int) *corev1.Node {
			return recorded(n, 3)
		}, want: []string{"worker", "n", "worker", "n"}, sequence: 3, pods: 2},
		"the node is another one": {then: func(n *corev1.Node, _ int) *corev1.Node {
			n = n.DeepCopy()
			n.UID = "another"
			return n
		}, want: []string{"worker", "n", "n"}},
		"its record changes all the time": {then: func(n *corev1.Node, answers int) *corev1.Node {
			return recorded(n, int32(answers))
		}, want: []string{"worker", "n", "worker", "n"}, err: ErrVanished},
		"its worker is gone": {gone: true, want: []string{"worker"}, err: ErrVanished},
	} {
		t.Run(name, func(t *testing.T) {
			v, c, _ := view(t)
			n := node("n")
			pod := worker(v, n, 1, running)
			c.pods = []corev1.Pod{*pod, *worker(v, n, 2, exited(1))}
			live := &server{cache: &cache{nodes: []corev1.Node{*n}, pods: c.pods}}
			if test.gone {
				live.pods = nil
			}
			if test.then != nil {
				live.then = func(answers int) { live.nodes = []corev1.Node{*test.then(n, answers)} }
			}
			got, in, err := v.Fresh(t.Context(), live, n)
			for i, read := range live.answers {
				live.answers[i] = strings.ReplaceAll(read, pod.Name, "worker")
			}
			if !slices.Equal(live.answers, test.want) || !errors.Is(err, test.err) {
				t.Errorf("read %q, %v; want %q, %v", live.answers, err, test.want, test.err)
			}
			if err == nil && (in.Node.Record.Sequence != test.sequence || in.Node.UID != string(got.UID) || len(in.Pods) != test.pods) {
				t.Errorf("node %s, of UID %s and sequence %d, with %d pods", got.UID, in.Node.UID, in.Node.Record.Sequence, len(in.Pods))
			}
		})
	}
	v, _, _ := view(t)
	if _, _, err := v.Fresh(t.Context(), &cache{}, node("n")); !apierrors.IsNotFound(err) {
		t.Errorf("the node is gone: %v", err)
	}
}

// recorded is the node with a record of that sequence.
func recorded(n *corev1.Node, sequence int32) *corev1.Node {
	n = n.DeepCopy()
	n.Annotations[marks.AnnotationRecord] = marks.Record{NodeUID: string(n.UID), Sequence: sequence}.Encode()
	return n
}

func TestFleet(t *testing.T) {
	v, c, _ := view(t)
	names := func(f *Fleet) (names string) {
		list, err := f.Summaries(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if names += m.Name; m.Excluded {
				names += "-"
			}
		}
		return names
	}
	c.nodes = []corev1.Node{*node("c"), *node("a"), *node("x", func(n *corev1.Node) { n.Annotations[marks.AnnotationSkip] = "true" })}
	f := NewFleet(v)
	f.Observe(v.Observe(node("b")))
	if got := names(f); got != "abcx-" || c.lists != 1 {
		t.Errorf("%s after %d lists: want those of before our time too, sorted, and what is never verified for what it is", got, c.lists)
	}
	f.Gone("a")
	f.Observe(v.Observe(node("b", func(n *corev1.Node) { n.Annotations[marks.AnnotationSkip] = "true" })))
	if got := names(f); got != "b-cx-" || c.lists != 1 {
		t.Errorf("%s after %d lists", got, c.lists)
	}
	before, _ := f.Summaries(t.Context())
	f.Observe(v.Observe(node("c", func(n *corev1.Node) { n.UID = "new" })))
	after, _ := f.Summaries(t.Context())
	if before[1].UID != "uid-c" || after[1].UID != "new" {
		t.Errorf("a list that was handed out must not change: %+v, %+v", before, after)
	}
}

// TestGatherAwaitsTheEndOfAPod: the cache loses a pod before the event comes that says what became of it.
func TestGatherAwaitsTheEndOfAPod(t *testing.T) {
	v, c, _ := view(t)
	n := node("n")
	gathers := func(what string, want error, vanished int32) {
		t.Helper()
		if in, err := v.Gather(t.Context(), n); !errors.Is(err, want) || in.VanishedAttempt != vanished {
			t.Errorf("%s: %v, vanished %d; want %v, %d", what, err, in.VanishedAttempt, want, vanished)
		}
	}
	first, second := worker(v, n, 1), worker(v, n, 2)
	v.Tracker.ObservePod(worker(v, node("m"), 1))
	v.Tracker.ObservePod(v.Builder.Probe(target(n), v.Config.For(nil), "uid-m/1", "g"))
	c.pods = []corev1.Pod{*first}
	gathers("not shown yet", nil, 0)
	v.Tracker.ObservePod(first)
	gathers("shown", nil, 0)
	c.pods = nil
	gathers("gone from the cache", ErrVanished, 0)
	v.Tracker.PodGone(workerpod.Observe(first), first)
	gathers("shown to be gone", nil, 1)

	v.Tracker.ObservePod(second)
	gathers("the next one, gone from the cache", ErrVanished, 0)
	exited(0)(second)
	v.Tracker.ObservePod(second)
	gathers("and shown with a result", nil, 1)

	v.Tracker.ObservePod(worker(v, n, 3))
	n.UID = "another"
	gathers("another node of the name", nil, 0)
	v.Tracker.neededSince(v.Observe(n))
	v.Tracker.ObservePod(worker(v, node("n"), 4))
	gathers("a pod of the node before it", nil, 0)
}

// A pod that this process created is awaited until the cache's store has reached its version, even if the store has
// lost the pod again.
func TestGatherAwaitsWhatWasCreated(t *testing.T) {
	s, v, c, _ := slotted(t, 0)
	n := node("n")
	gathers := func(what string, pods int, want error, vanished int32) {
		t.Helper()
		if in, err := v.Gather(t.Context(), n); !errors.Is(err, want) || len(in.Pods) != pods || in.VanishedAttempt != vanished {
			t.Errorf("%s: %v, %d pods, vanished %d; want %v, %d, %d", what, err, len(in.Pods), in.VanishedAttempt, want, pods, vanished)
		}
	}
	first, second := worker(v, n, 1), worker(v, n, 2)
	take(t, s, "n")
	gathers("a slot", 0, nil, 0)
	s.Creating("n", first)
	gathers("before the API server has answered", 0, ErrVanished, 0)
	s.GiveBack("n")
	gathers("not created", 0, nil, 0)
	creates(s, "n", first, "11")
	gathers("created", 0, ErrVanished, 0)
	c.show(first)
	gathers("in the cache", 1, nil, 0)
	c.hide(first)
	c.version = "12"
	gathers("awaited once", 0, nil, 0)
	creates(s, "n", second, "13")
	gathers("the next one", 0, ErrVanished, 0)
	c.version = "13"
	gathers("made and gone between two lists of the watch", 0, nil, 2)
	if len(v.Tracker.pods) != 1 || len(v.reserved.of) > 0 { // the first one's event is yet to come
		t.Errorf("%v, %v", v.Tracker.pods, v.reserved.of)
	}
	creates(s, "n", worker(v, n, 3), "14")
	c.version = ""
	gathers("a store that does not say how far it has come", 0, nil, 3)
}

// A new leader's cache may lag behind what the previous leader created.
func TestBeginAwaitsAnEarlierLeadersWorkers(t *testing.T) {
	for name, test := range map[string]struct {
		show  bool
		until string
		takes time.Duration
	}{
		"the cache shows it":                  {show: true, takes: time.Second},
		"it is gone, and the store beyond it": {until: "12", takes: time.Second},
		"the watch never shows it":            {until: "11", takes: shownWithin},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, v, c, _ := slotted(t, 0)
				n, m := node("n"), node("m")
				ended, last := worker(v, n, 1, exited(0)), worker(v, n, 2, running)
				last.ResourceVersion, ended.ResourceVersion = "12", "13"
				c.pods = []corev1.Pod{*worker(v, m, 1, running)}
				live := &cache{pods: []corev1.Pod{*ended, *last, *worker(v, m, 1, running)}}
				began := time.Now()
				time.AfterFunc(time.Second, func() {
					if c.complete(test.until); test.show {
						c.show(last)
					}
				})
				if err := v.Begin(t.Context(), live); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < test.takes || took > test.takes+time.Second {
					t.Errorf("it took %s, want %s", took, test.takes)
				}
			})
		})
	}
}

// TestBeginGoesOnWithoutTheList: a list that fails is said in the log, and holds nothing up.
func TestBeginGoesOnWithoutTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _, _ := view(t)
		live := &cache{err: errors.New("no answer")}
		if err := v.Begin(t.Context(), live); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := v.Begin(ctx, live); err == nil {
			t.Error("the process ends, and it goes on")
		}
	})
}
