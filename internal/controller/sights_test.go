package controller

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// What a pod shows is dated on our own clock, whatever times the kubelet writes.
func TestSightsAreOnOurOwnClock(t *testing.T) {
	v, _, at := view(t)
	n := node("n")
	t0 := at.at
	behind := func(p *corev1.Pod) {
		running(p)
		p.CreationTimestamp = metav1.NewTime(t0.Add(-time.Hour))
		p.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(t0.Add(-10 * time.Minute))
	}
	v.Sights.SeePod(worker(v, n, 1, unschedulable))
	at.pass(time.Second)
	v.Sights.SeePod(worker(v, n, 1))
	at.pass(time.Second)
	v.Sights.SeePod(worker(v, n, 1, unschedulable))
	at.pass(time.Second)
	v.Sights.SeePod(worker(v, n, 1, behind))
	at.pass(time.Minute)
	got := v.Sights.SeePod(worker(v, n, 1, behind)).Seen
	want := workerpod.Sight{First: t0, Running: t0.Add(3 * time.Second)}
	if got != want {
		t.Errorf("running: %+v, want %+v", got, want)
	}
	at.pass(time.Minute)
	want.Result, want.Witnessed = at.at, true
	v.Sights.SeePod(worker(v, n, 1, exited(1)))
	at.pass(time.Minute)
	if got = v.Sights.SeePod(worker(v, n, 1, exited(1))).Seen; got != want {
		t.Errorf("ended: %+v, want %+v", got, want)
	}
}

// An image that could not be pulled at first is a result, and none of the run that comes after it.
func TestAResultThatPassedIsNotTheLastOnes(t *testing.T) {
	v, _, at := view(t)
	n := node("n")
	v.Sights.SeePod(worker(v, n, 1))
	v.Sights.SeePod(worker(v, n, 1, imageMissing))
	at.pass(time.Minute)
	if seen := v.Sights.SeePod(worker(v, n, 1, running)).Seen; !seen.Result.IsZero() || seen.Witnessed {
		t.Errorf("running: %+v", seen)
	}
	at.pass(time.Minute)
	if seen := v.Sights.SeePod(worker(v, n, 1, exited(1))).Seen; seen.Result != at.at || !seen.Witnessed {
		t.Errorf("ended at %v: %+v", at.at, seen)
	}
}

// A successor counts from its own first sight, and has not seen the end of what had ended before.
func TestASuccessorSeesWithItsOwnEyes(t *testing.T) {
	v, _, at := view(t)
	got := v.Sights.SeePod(worker(v, node("n"), 1, exited(0))).Seen
	if want := (workerpod.Sight{First: at.at, Result: at.at}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Gather shows pods as they were seen, and does not by itself see them.
func TestWhatNoWatchHasShownCountsAsSeenNow(t *testing.T) {
	v, c, at := view(t)
	n := node("n")
	c.pods = []corev1.Pod{*worker(v, n, 1, running)}
	for range 2 {
		at.pass(time.Minute)
		in, err := v.Gather(t.Context(), n)
		if err != nil || len(in.Pods) != 1 {
			t.Fatal(in.Pods, err)
		}
		if seen := in.Pods[0].Seen; seen.First != at.at || seen.Running != at.at {
			t.Errorf("%+v at %v", seen, at.at)
		}
	}
	v.Sights.SeePod(&c.pods[0])
	then := at.at
	at.pass(time.Minute)
	if in, _ := v.Gather(t.Context(), n); in.Pods[0].Seen.Running != then {
		t.Errorf("%+v", in.Pods[0].Seen)
	}
}

// A cache that lags behind our own writes shows them all the same, for as long as they may take to reach it.
func TestAPodIsThereOnceItWasCreated(t *testing.T) {
	v, c, at := view(t)
	n := node("n")
	verify, probe := worker(v, n, 3), v.Builder.Probe(target(n), v.Config.For(nil), "uid-m/1", "g")
	numbers := func() (numbers []int32) {
		in, err := v.Gather(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range in.Pods {
			numbers = append(numbers, p.Attempt.Number)
		}
		return numbers
	}
	probes := func() int {
		p, err := v.Probes(t.Context(), "g")
		if err != nil {
			t.Fatal(err)
		}
		return len(p)
	}
	v.Sights.Creating(verify)
	if got := numbers(); got != nil {
		t.Errorf("%v, before the API server has answered", got)
	}
	v.Sights.Created(verify)
	if got := numbers(); !slices.Equal(got, []int32{3}) || probes() != 0 {
		t.Errorf("%v: it was created, and the cache does not show it", got)
	}
	c.pods = []corev1.Pod{*verify}
	if got := numbers(); !slices.Equal(got, []int32{3}) {
		t.Errorf("%v: the cache shows it, and its event has not come", got)
	}
	v.Sights.Shown(verify.Name)
	v.Sights.Created(verify) // its answer comes after its event
	c.pods = nil
	if got := numbers(); got != nil {
		t.Errorf("%v: it is gone again", got)
	}

	if !v.Sights.Creating(probe) || v.Sights.Creating(probe) {
		t.Error("a group has one probe on its way, whatever the API server takes over it")
	}
	v.Sights.Created(probe)
	if at.pass(unseenFor); probes() != 1 {
		t.Error("a probe is there for as long as it may take to reach the cache")
	}
	if at.pass(1); probes() != 0 || !v.Sights.Creating(probe) {
		t.Error("a probe that never reached the cache is waited for")
	}
	v.Sights.Shown(probe.Name)
	if !v.Sights.Creating(probe) {
		t.Error("a probe that was not created keeps its group from another one")
	}
}

// A cache is ahead of the events of its watch. Of two pods whose ends are in it, and of which no event has come, it is
// not known which ended first; once both came it is.
func TestAnEndIsWitnessedByTheWatchAlone(t *testing.T) {
	v, c, at := view(t)
	n, m := node("n"), node("m")
	failed := worker(v, n, 1, running)
	probe := v.Builder.Probe(target(m), v.Config.For(nil), "uid-n/1", "g")
	probe.UID = "probe"
	running(probe)
	v.Sights.SeePod(failed)
	v.Sights.SeePod(probe)
	exited(0)(probe) // it ended first
	exited(1)(failed)
	c.pods = []corev1.Pod{*failed, *probe}
	look := func() (f, p workerpod.Sight) {
		in, err := v.Gather(t.Context(), n)
		if err != nil || len(in.Pods) != 1 {
			t.Fatal(in.Pods, err)
		}
		at.pass(time.Millisecond)
		probes, err := v.Probes(t.Context(), "g")
		if err != nil || len(probes) != 1 {
			t.Fatal(probes, err)
		}
		return in.Pods[0].Seen, probes[0].Seen
	}
	at.pass(time.Second)
	if _, p := look(); p.Witnessed {
		t.Errorf("no event has come: %+v", p)
	}
	v.Sights.SeePod(probe)
	if f, p := look(); !p.Witnessed || p.Result.After(f.Result) {
		t.Errorf("the probe's has: failed %+v, probe %+v", f, p)
	}
	at.pass(time.Second)
	v.Sights.SeePod(failed)
	if f, p := look(); !p.Witnessed || !f.Witnessed || !p.Result.Before(f.Result) {
		t.Errorf("both have: failed %+v, probe %+v", f, p)
	}
}

func TestAVanishedAttemptIsRemembered(t *testing.T) {
	v, c, _ := view(t)
	n := node("n")
	gone := func(p *corev1.Pod) {
		v.Sights.SeePod(p)
		v.Sights.PodGone(workerpod.Observe(p), p)
	}
	gather := func() decide.Input {
		in, err := v.Gather(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	gone(worker(v, n, 1, exited(1)))
	if in := gather(); in.Vanished != 0 {
		t.Errorf("one that had a result: %d", in.Vanished)
	}
	gone(worker(v, n, 2, running))
	if in := gather(); in.Vanished != 2 {
		t.Errorf("vanished %d", in.Vanished)
	}
	again := node("n", func(n *corev1.Node) { n.UID = "another" })
	if in, _ := v.Gather(t.Context(), again); in.Vanished != 0 {
		t.Errorf("of an earlier node of the name: %d", in.Vanished)
	}
	if v.Sights.NodeGone("n"); len(v.Sights.nodes) != 0 || len(v.Sights.pods) != 0 {
		t.Errorf("left: %v", v.Sights.nodes)
	}
	if in := gather(); in.Vanished != 0 {
		t.Errorf("left: %d", in.Vanished)
	}
	c.pods = nil
}

func TestTheEndOfAnEarlierNodesPodsChangesNothing(t *testing.T) {
	v, _, _ := view(t)
	earlier, n := node("n"), node("n", func(n *corev1.Node) { n.UID = "later" })
	v.Sights.Rehearse(of("n", "later"))
	p := worker(v, earlier, 1, running)
	v.Sights.PodGone(workerpod.Observe(p), p)
	if in, err := v.Gather(t.Context(), n); err != nil || !in.Rehearsed || in.Vanished != 0 {
		t.Errorf("%+v, %v", in, err)
	}
}

func TestAnEventThatNoWriteGuardsIsEmittedOnce(t *testing.T) {
	v, _, _ := view(t)
	in := of("n", "u1")
	if !v.Sights.Once(in, "a") || v.Sights.Once(in, "a") || !v.Sights.Once(in, "b") || !v.Sights.Once(of("m", "u2"), "b") || !v.Sights.Once(of("n", "u3"), "b") {
		t.Error("an event is emitted once for each key and node")
	}
}

func TestQuietKeepsAccountForEachNode(t *testing.T) {
	v, _, at := view(t)
	in := of("n", "u1")
	want := decide.Plan{Condition: &marks.Condition{Status: corev1.ConditionUnknown, Reason: marks.ReasonVerifying, Message: "m"}}
	if write, wait := v.Sights.Quiet(in, want); write || wait != 5*time.Second {
		t.Fatalf("at first: %v, %s", write, wait)
	}
	at.pass(3 * time.Second)
	if write, wait := v.Sights.Quiet(of("m", "u2"), want); write || wait != 5*time.Second {
		t.Errorf("another node: %v, %s", write, wait)
	}
	if write, wait := v.Sights.Quiet(in, want); write || wait != 2*time.Second {
		t.Errorf("after 3 s: %v, %s", write, wait)
	}
	if write, _ := v.Sights.Quiet(in, decide.Plan{}); write {
		t.Error("nothing was written")
	}
	at.pass(3 * time.Second)
	if write, _ := v.Sights.Quiet(in, want); write {
		t.Error("what was not wanted in between counts from its beginning")
	}
	at.pass(5 * time.Second)
	if write, _ := v.Sights.Quiet(in, want); !write {
		t.Error("it lasted, and is not written")
	}
}

// In a dry run the mark on the pod is all the record there is.
func TestADryRunRemembersItsAttempt(t *testing.T) {
	v, c, _ := view(t)
	n := node("n")
	v.Sights.Rehearsing = true
	kept := worker(v, n, 1, exited(0))
	kept.Annotations[workerpod.AnnotationRecorded] = "true"
	rehearsed := func() bool {
		in, err := v.Gather(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return in.Rehearsed
	}
	if rehearsed() {
		t.Error("before the attempt")
	}
	if c.pods = []corev1.Pod{*kept}; !rehearsed() {
		t.Error("its successor does it again")
	}
	c.pods = nil
	if v.Sights.Rehearse(of("n", "uid-n")); !rehearsed() {
		t.Error("after the pod went it is done again")
	}
	v.Sights.Rehearsing, c.pods = false, []corev1.Pod{*kept}
	if v.Sights.NodeGone("n"); rehearsed() {
		t.Error("a pod that is kept for its logs is no dry run")
	}
}

// A successor, and a process that sees the taint come back, counts from its own first sight.
func TestSinceWhenANodeMustBeVerified(t *testing.T) {
	v, _, at := view(t)
	tainted := node("n")
	open := node("n", func(n *corev1.Node) { n.Spec.Taints = nil })
	since := func(n *corev1.Node) time.Time {
		in, err := v.Gather(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return in.NeededSince
	}
	first := v.Sights.Now()
	if got := since(tainted); !got.Equal(first) {
		t.Errorf("at first sight %s, want %s", got, first)
	}
	at.pass(time.Minute)
	if got := since(tainted); !got.Equal(first) {
		t.Errorf("later %s, want %s", got, first)
	}
	if got := since(open); !got.IsZero() {
		t.Errorf("of a node that need not be: %s", got)
	}
	if got := since(tainted); !got.Equal(v.Sights.Now()) {
		t.Errorf("once the taint is back: %s", got)
	}
	at.pass(time.Minute)
	if got := since(node("n", func(n *corev1.Node) { n.UID = "another" })); !got.Equal(v.Sights.Now()) {
		t.Errorf("of another node of the name: %s", got)
	}
	if v.Observe(tainted).NeededSince != (time.Time{}) {
		t.Error("a scrape keeps account")
	}
}

// Only a node that this process saw being created has an account of its time, until it or somebody else releases the node.
func TestTimelinesOfNewNodes(t *testing.T) {
	v, _, at := view(t)
	in := v.Observe(node("n"))
	v.Sights.See(in, decide.Plan{Step: decide.StepStart})
	if spent := v.Sights.Released(in); spent != nil {
		t.Errorf("a node from before: %v", spent)
	}
	v.Sights.Born(in)
	at.pass(3 * time.Second)
	v.Sights.See(in, decide.Plan{Waits: []decide.Wait{{Kind: decide.WaitSlot}}})
	at.pass(2 * time.Second)
	other := in
	other.Node.UID = "another"
	if spent := v.Sights.Released(other); spent != nil {
		t.Errorf("another node of the name: %v", spent)
	}
	if spent := v.Sights.Released(in); spent[decide.PhaseStart] != 3*time.Second || spent[decide.PhaseSlot] != 2*time.Second || len(spent) != 2 {
		t.Errorf("%v", spent)
	}
	if spent := v.Sights.Released(in); spent != nil {
		t.Errorf("counted again: %v", spent)
	}
	v.Sights.Born(in)
	open := in
	open.Node.Gated = false
	v.Sights.See(open, decide.Plan{})
	if spent := v.Sights.Released(in); spent != nil {
		t.Errorf("one that somebody else released: %v", spent)
	}
	v.Sights.Born(open)
	if spent := v.Sights.Released(open); spent != nil {
		t.Errorf("one that was created without the taint: %v", spent)
	}
}

// A node counts once for each thing that it waits for, and not after that or after its end.
func TestWaitingNodes(t *testing.T) {
	v, _, _ := view(t)
	for _, name := range []string{"a", "b"} {
		in := of(name, name)
		in.Node.Karpenter.Pool = "p"
		pods := decide.Wait{Kind: "pods", Name: "ns app=agent"}
		v.Sights.See(in, decide.Plan{Waits: []decide.Wait{pods, {Kind: "conditions", Name: "A"}, pods}})
	}
	agent := decide.Waiting{For: "pods ns app=agent", Pool: "p"}
	if got := v.Sights.Waiting(); got[agent] != 2 || got[decide.Waiting{For: "conditions A", Pool: "p"}] != 2 || len(got) != 2 {
		t.Errorf("%v", got)
	}
	v.Sights.See(of("a", "a"), decide.Plan{})
	if got := v.Sights.Waiting(); got[agent] != 1 {
		t.Errorf("one of them waits no more: %v", got)
	}
	v.Sights.NodeGone("b")
	if got := v.Sights.Waiting(); len(got) != 0 {
		t.Errorf("both are gone: %v", got)
	}
}
