package controller

import (
	"errors"
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// answers are those after which no pod exists (refusals), and those after which one may (doubts).
func answers() (refusals, doubts map[string]error) {
	pods := corev1.Resource("pods")
	return map[string]error{
			"403": apierrors.NewForbidden(pods, "p", errors.New("no")),
			"422": apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil),
			"400": apierrors.NewBadRequest("no"),
			"404": apierrors.NewNotFound(corev1.Resource("namespaces"), "ns"),
		}, map[string]error{
			"no answer": io.ErrUnexpectedEOF,
			"504":       apierrors.NewTimeoutError("etcd", 1),
			"500":       apierrors.NewInternalError(errors.New("no")),
			"429":       apierrors.NewTooManyRequests("slow down", 1),
			"the name":  apierrors.NewAlreadyExists(pods, "p"),
			"altered":   workerpod.AlteredPod{},
		}
}

// A pod that was asked for is awaited until a watch shows it, its node is gone, the API server refuses it, or ten seconds
// have passed since its answer.
func TestGatherAwaitsWhatWasAskedFor(t *testing.T) {
	type given struct {
		v  *View
		c  *cache
		at *clock
		p  *corev1.Pod
	}
	created := func(g given) { g.v.Tracker.Answered(g.p, nil) }
	for name, tc := range map[string]struct {
		then func(given)
		want error
	}{
		"in flight":                   {func(given) {}, ErrNotShown},
		"in flight for a minute":      {func(g given) { g.at.pass(time.Minute) }, ErrNotShown},
		"created":                     {created, ErrNotShown},
		"created, almost ten seconds": {func(g given) { g.at.pass(time.Minute); created(g); g.at.pass(awaitedFor - 1) }, ErrNotShown},
		"created, ten seconds":        {func(g given) { created(g); g.at.pass(awaitedFor) }, nil},
		"in the cache, and no event":  {func(g given) { created(g); g.c.show(g.p) }, ErrNotShown},
		"shown":                       {func(g given) { created(g); g.v.Tracker.ObservePod(g.p) }, nil},
		"shown before the answer":     {func(g given) { g.v.Tracker.ObservePod(g.p); created(g) }, nil},
		"gone":                        {func(g given) { created(g); g.v.Tracker.PodGone(workerpod.Observe(g.p), g.p) }, nil},
		"its node is gone":            {func(g given) { created(g); g.v.Tracker.NodeGone("n") }, nil},
		"another node is gone":        {func(g given) { created(g); g.v.Tracker.NodeGone("m") }, ErrNotShown},
		"an earlier pod of the name": {func(g given) {
			earlier := g.p.DeepCopy()
			earlier.UID = "earlier"
			g.v.Tracker.ObservePod(earlier)
			g.v.Tracker.asks(g.p)
			g.v.Tracker.ObservePod(earlier)
			g.v.Tracker.PodGone(workerpod.Observe(earlier), earlier)
			created(g)
		}, ErrNotShown},
		"a leader's before": {func(g given) {
			delete(g.v.Tracker.asked, g.p.Name)
			g.v.Tracker.inherits(g.p)
		}, ErrNotShown},
		"a leader's before, shown": {func(g given) { g.v.Tracker.ObservePod(g.p); g.v.Tracker.inherits(g.p) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			v, c, at := view(t)
			p := worker(v, node("n"), 2)
			if !v.Tracker.asks(p) {
				t.Fatal("not asked for")
			}
			tc.then(given{v, c, at, p})
			if _, err := v.Gather(t.Context(), recorded(node("n"), 1)); !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
			other := node("n", func(n *corev1.Node) { n.UID = "another" })
			if _, err := v.Gather(t.Context(), other); err != nil {
				t.Errorf("another node of the name: %v", err)
			}
		})
	}
}

// After an answer that refuses a pod there is none. After any other error there may be one: it is asked for again by the
// same name at once, and only a node that counts again from a lower number waits for it.
func TestPodInDoubt(t *testing.T) {
	refusals, doubts := answers()
	gathers := func(t *testing.T, err error, sequence int32, want error) *View {
		t.Helper()
		v, _, at := view(t)
		p := worker(v, node("n"), 3)
		v.Tracker.asks(p)
		v.Tracker.Answered(p, err)
		if _, err := v.Gather(t.Context(), recorded(node("n"), sequence)); !errors.Is(err, want) {
			t.Errorf("after %d attempts: %v, want %v", sequence, err, want)
		}
		at.pass(awaitedFor)
		if _, err := v.Gather(t.Context(), recorded(node("n"), sequence)); err != nil {
			t.Errorf("ten seconds later: %v", err)
		}
		return v
	}
	for name, err := range refusals {
		t.Run(name, func(t *testing.T) {
			gathers(t, err, 2, nil)
			gathers(t, err, 0, nil)
		})
	}
	for name, err := range doubts {
		t.Run(name, func(t *testing.T) {
			gathers(t, err, 2, nil)
			gathers(t, err, 3, nil)
			gathers(t, err, 1, ErrNotShown)
			gathers(t, err, 0, ErrNotShown)
		})
	}
}

// A pod takes a slot until the cache shows it, also if that takes longer than a decision waits. One that was never shown
// gives it back after a minute. A pod in doubt takes none.
func TestUnshownPodTakesASlot(t *testing.T) {
	refusals, doubts := answers()
	for name, tc := range map[string]struct {
		err   error
		after time.Duration
		free  bool
	}{
		"created":                  {nil, 0, false},
		"created, ten seconds ago": {nil, awaitedFor, false},
		"created, a minute ago":    {nil, countedFor, true},
		"refused":                  {refusals["403"], 0, true},
		"in doubt":                 {doubts["504"], 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, v, _, at := slotted(t, 1)
			p := worker(v, node("n1"), 1)
			if !take(t, s, "n1") || !s.Asks("n1", p) {
				t.Fatal("no slot")
			}
			if at.pass(2 * countedFor); take(t, s, "n2") {
				t.Error("another node has it while the API server is asked")
			}
			v.Tracker.Answered(p, tc.err)
			s.GiveBack("n1")
			if at.pass(tc.after); take(t, s, "n2") != tc.free {
				t.Errorf("free: %t, want %t", !tc.free, tc.free)
			}
		})
	}
}

// One probe of a group is created at a time, however long the API server takes.
func TestOneProbeOfAGroupIsCreated(t *testing.T) {
	s, v, c, at := slotted(t, 0)
	probe := func(on, subject string) *corev1.Pod {
		p := v.Builder.Probe(target(node(on)), v.Config.For(nil), subject, "g")
		p.UID = types.UID(on)
		return p
	}
	first, second := probe("n", "uid-a/1"), probe("m", "uid-b/1")
	if !take(t, s, "a") || !take(t, s, "b") || !s.Asks("a", first) || s.Asks("b", second) {
		t.Error("the second one is created too")
	}
	if _, err := v.Probes(t.Context(), "g"); !errors.Is(err, ErrNotShown) {
		t.Errorf("one is being created: %v", err)
	}
	refusals, doubts := answers()
	v.Tracker.Answered(first, doubts["504"])
	if _, err := v.Probes(t.Context(), "g"); err != nil || !s.Asks("a", first) {
		t.Errorf("one in doubt is asked for again: %v", err)
	}
	v.Tracker.Answered(first, refusals["403"])
	if !s.Asks("b", second) {
		t.Error("one that was not created keeps its group from another")
	}
	v.Tracker.Answered(second, nil)
	if _, err := v.Probes(t.Context(), "g"); !errors.Is(err, ErrNotShown) || s.Asks("a", first) {
		t.Errorf("one was created: %v", err)
	}
	if _, err := v.Probes(t.Context(), "another"); err != nil {
		t.Errorf("another group: %v", err)
	}
	if _, err := v.Gather(t.Context(), node("m")); !errors.Is(err, ErrNotShown) {
		t.Errorf("the node that it runs on: %v", err)
	}
	shows(s, c, second)
	if probes, err := v.Probes(t.Context(), "g"); err != nil || len(probes) != 1 {
		t.Errorf("%v, %v", probes, err)
	}
	c.hide(second)
	if v.Tracker.Answered(first, nil); !s.Asks("a", first) {
		t.Error("a group without a probe gets none")
	}
	v.Tracker.Answered(first, nil)
	if at.pass(awaitedFor); !s.Asks("b", second) {
		t.Error("one that no watch has shown for ten seconds keeps its group from another")
	}
}

// A new leader's cache may lag behind what the previous leader created. Those pods take slots, and their nodes wait.
func TestWorkersOfAnEarlierLeader(t *testing.T) {
	s, v, c, _ := slotted(t, 2)
	n, m := node("n"), node("m")
	ended, last := worker(v, n, 1, exited(0)), worker(v, n, 2, running)
	shows(s, c, worker(v, m, 1, running))
	live := &cache{pods: []corev1.Pod{*ended, *last, *worker(v, m, 1, running)}}
	if err := v.Begin(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Gather(t.Context(), n); !errors.Is(err, ErrNotShown) {
		t.Errorf("its worker is not shown: %v", err)
	}
	if _, err := v.Gather(t.Context(), m); err != nil {
		t.Errorf("its worker is shown: %v", err)
	}
	if take(t, s, "o") {
		t.Error("a third worker")
	}
	exited(1)(last)
	if o := v.Tracker.ObservePod(last); o.Seen.UnderWay || o.Seen.Witnessed {
		t.Errorf("this process has not seen it under way: %+v", o.Seen)
	}
	if len(v.Tracker.asked) > 0 {
		t.Errorf("left: %v", v.Tracker.asked)
	}
}
