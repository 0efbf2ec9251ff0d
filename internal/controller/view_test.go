package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
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
		}, want: []string{"worker", "n", "worker", "last", "n"}, sequence: 3, pods: 2},
		"the node is another one": {then: func(n *corev1.Node, _ int) *corev1.Node {
			n = n.DeepCopy()
			n.UID = "another"
			return n
		}, want: []string{"worker", "n", "n"}},
		"its record changes all the time": {then: func(n *corev1.Node, answers int) *corev1.Node {
			return recorded(n, int32(answers))
		}, want: []string{"worker", "n", "worker", "n"}, err: ErrNotShown},
		"its worker is gone": {gone: true, want: []string{"worker"}, err: ErrNotShown},
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
				if live.answers[i] = strings.ReplaceAll(read, pod.Name, "worker"); strings.HasPrefix(read, "verify") && read != pod.Name {
					live.answers[i] = "last"
				}
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

// TestFreshReadsUnshownWorkers: the worker of the last attempt is read by its name if the cache lacks it, and the workers
// of a node whose record is lost are listed. Those that still occupy the node are part of the input.
func TestFreshReadsUnshownWorkers(t *testing.T) {
	condition := func(n *corev1.Node) *corev1.Node {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: marks.ConditionType, Status: corev1.ConditionFalse})
		return n
	}
	after := func(outcome attempt.Outcome) *corev1.Node {
		n := node("n")
		n.Annotations[marks.AnnotationRecord] = marks.Record{NodeUID: string(n.UID), Sequence: 2, LastOutcome: outcome}.Encode()
		return n
	}
	altered := func(p *corev1.Pod) {
		delete(p.Labels, workerpod.LabelPurpose)
		delete(p.Annotations, workerpod.AnnotationAttempt)
	}
	elsewhere := func(p *corev1.Pod) { p.Spec.NodeName = "m" }
	for name, tc := range map[string]struct {
		cached, live *corev1.Node // nil: as cached
		number       int32        // of the worker
		change       []func(*corev1.Pod)
		reads        int // of pods by name
		lists        int
		want         int32 // the number of the attempt that is found; 0: none
	}{
		"a first attempt":              {cached: node("n"), number: 1},
		"the last one passed":          {cached: after(attempt.Passed), number: 2},
		"the last one failed":          {cached: after(attempt.Failed), number: 2, reads: 1, want: 2},
		"the last one is inconclusive": {cached: after(attempt.Inconclusive), number: 2, change: []func(*corev1.Pod){running}, reads: 1, want: 2},
		"it has ended":                 {cached: after(attempt.Failed), number: 2, change: []func(*corev1.Pod){exited(1)}, reads: 1},
		"it is gone":                   {cached: after(attempt.Failed), number: 9, reads: 1},
		"a policy changed it":          {cached: after(attempt.Inconclusive), number: 2, change: []func(*corev1.Pod){altered}, reads: 1, want: 2},
		"it is elsewhere":              {cached: after(attempt.Inconclusive), number: 2, change: []func(*corev1.Pod){elsewhere}, reads: 1, want: 2},
		"it ends elsewhere":            {cached: after(attempt.Inconclusive), number: 2, change: []func(*corev1.Pod){elsewhere, terminating, graceful}, reads: 1},
		"somebody else's": {cached: after(attempt.Inconclusive), number: 2, change: []func(*corev1.Pod){func(p *corev1.Pod) {
			p.OwnerReferences, p.Labels, p.Annotations = nil, nil, nil
		}}, reads: 1},
		"the record is lost":                     {cached: condition(node("n")), number: 7, lists: 1, want: 7},
		"it is lost, and the cache lags":         {cached: node("n"), live: condition(node("n")), number: 7, lists: 1, want: 7},
		"it is lost, and the cache has a record": {cached: condition(after(attempt.Failed)), live: condition(node("n")), number: 7, reads: 1, lists: 1, want: 7},
		"it is lost, and the worker has ended":   {cached: condition(node("n")), number: 7, change: []func(*corev1.Pod){exited(1)}, lists: 1, want: 7},
	} {
		t.Run(name, func(t *testing.T) {
			v, _, _ := view(t)
			now := tc.live
			if now == nil {
				now = tc.cached
			}
			live := &server{cache: &cache{nodes: []corev1.Node{*now}, pods: []corev1.Pod{*worker(v, now, tc.number, tc.change...)}}}
			_, in, err := v.Fresh(t.Context(), live, tc.cached)
			if err != nil {
				t.Fatal(err)
			}
			reads := len(slices.DeleteFunc(live.answers, func(name string) bool { return name == "n" }))
			if reads != tc.reads || live.lists != tc.lists {
				t.Errorf("%d reads, %d lists; want %d, %d", reads, live.lists, tc.reads, tc.lists)
			}
			got := int32(0)
			for _, p := range in.Pods {
				if got = p.Attempt.Number; p.Purpose != workerpod.PurposeVerify {
					t.Errorf("purpose %q", p.Purpose)
				}
			}
			if got != tc.want {
				t.Errorf("attempt %d, want %d", got, tc.want)
			}
		})
	}
}

// graceful is a pod whose deletion gives its container a grace period.
func graceful(p *corev1.Pod) { p.DeletionGracePeriodSeconds = ptr.To[int64](5) }

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
