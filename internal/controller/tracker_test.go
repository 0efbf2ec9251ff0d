package controller

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Every state of a pod is dated on our own clock, whatever times the kubelet writes.
func TestTimesAreOnOurOwnClock(t *testing.T) {
	v, _, at := view(t)
	n := node("n")
	t0 := at.at
	behind := func(p *corev1.Pod) {
		running(p)
		p.CreationTimestamp = metav1.NewTime(t0.Add(-time.Hour))
		p.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(t0.Add(-10 * time.Minute))
	}
	v.Tracker.ObservePod(worker(v, n, 1, unschedulable))
	at.pass(time.Second)
	v.Tracker.ObservePod(worker(v, n, 1))
	at.pass(time.Second)
	v.Tracker.ObservePod(worker(v, n, 1, unschedulable))
	at.pass(time.Second)
	v.Tracker.ObservePod(worker(v, n, 1, behind))
	at.pass(time.Minute)
	got := v.Tracker.ObservePod(worker(v, n, 1, behind)).Seen
	want := workerpod.FirstSeen{First: t0, Running: t0.Add(3 * time.Second), UnderWay: true}
	if got != want {
		t.Errorf("running: %+v, want %+v", got, want)
	}
	at.pass(time.Minute)
	want.Result, want.Witnessed = at.at, true
	v.Tracker.ObservePod(worker(v, n, 1, exited(1)))
	at.pass(time.Minute)
	if got = v.Tracker.ObservePod(worker(v, n, 1, exited(1))).Seen; got != want {
		t.Errorf("ended: %+v, want %+v", got, want)
	}
}

// Init containers are dated, too: from the first observation with a started init container to the first one without.
func TestInitContainersAreDated(t *testing.T) {
	v, _, at := view(t)
	n := node("n")
	t0 := at.at
	warm := func(state corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "warm"}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "warm", State: state}}
		}
	}
	runs := warm(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	done := warm(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
	v.Tracker.ObservePod(worker(v, n, 1))
	for _, change := range []func(*corev1.Pod){runs, runs, done, done} {
		at.pass(time.Second)
		v.Tracker.ObservePod(worker(v, n, 1, change))
	}
	at.pass(time.Second)
	got := v.Tracker.ObservePod(worker(v, n, 1, done, running)).Seen
	want := workerpod.FirstSeen{First: t0, Init: t0.Add(time.Second), InitEnded: t0.Add(3 * time.Second), Running: t0.Add(5 * time.Second), UnderWay: true}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// If an image could not be pulled at first, that is a result. It is not a result of the run that follows.
func TestAResultThatPassedIsNotTheLastOnes(t *testing.T) {
	v, _, at := view(t)
	n := node("n")
	v.Tracker.ObservePod(worker(v, n, 1))
	v.Tracker.ObservePod(worker(v, n, 1, imageMissing))
	at.pass(time.Minute)
	if seen := v.Tracker.ObservePod(worker(v, n, 1, running)).Seen; !seen.Result.IsZero() || seen.Witnessed {
		t.Errorf("running: %+v", seen)
	}
	at.pass(time.Minute)
	if seen := v.Tracker.ObservePod(worker(v, n, 1, exited(1))).Seen; seen.Result != at.at || !seen.Witnessed {
		t.Errorf("ended at %v: %+v", at.at, seen)
	}
}

// A successor counts from its own first observation. It has not observed the end of what had ended before.
func TestASuccessorSeesWithItsOwnEyes(t *testing.T) {
	v, _, at := view(t)
	got := v.Tracker.ObservePod(worker(v, node("n"), 1, exited(0))).Seen
	if want := (workerpod.FirstSeen{First: at.at, Result: at.at}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// The first observation of a deletion request, and of a node that is not Ready, is dated on our own clock, too.
func TestWhatDoesNotEndIsDated(t *testing.T) {
	v, c, at := view(t)
	v.Observe(ready("n", corev1.ConditionFalse))
	notReady := at.at
	at.pass(time.Minute)
	deleted := worker(v, node("n"), 1, running, func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: at.at.Add(-time.Hour)}, ptr.To[int64](7)
	})
	v.Tracker.ObservePod(deleted)
	terminating := at.at
	at.pass(time.Minute)
	c.pods = []corev1.Pod{*deleted}
	in, err := v.Gather(t.Context(), ready("n", corev1.ConditionTrue))
	if err != nil || len(in.Pods) != 1 {
		t.Fatal(in.Pods, err)
	}
	p := in.Pods[0]
	due := terminating.Add(67 * time.Second)
	if p.Seen.Terminating != terminating || p.EndsBy() != due || !p.HasRunningContainer || in.NotReadySeen != notReady {
		t.Errorf("%+v, due to end %v, not Ready %v", p, p.EndsBy(), in.NotReadySeen)
	}
	in, _ = v.Gather(t.Context(), ready("n", corev1.ConditionUnknown))
	if in.NotReadySeen != at.at || !v.Tracker.Lost("n") {
		t.Errorf("lost: not Ready %v", in.NotReadySeen)
	}
	if v.Observe(ready("m", corev1.ConditionTrue)); len(v.Tracker.nodes) != 1 {
		t.Error("an account is kept of every node that is well")
	}
}

// Gather returns pods as they were observed, and does not observe them itself.
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
	v.Tracker.ObservePod(&c.pods[0])
	then := at.at
	at.pass(time.Minute)
	if in, _ := v.Gather(t.Context(), n); in.Pods[0].Seen.Running != then {
		t.Errorf("%+v", in.Pods[0].Seen)
	}
}

// A cache is ahead of the events of its watch. If the cache has the ends of two pods and no event has come, it is
// unknown which pod ended first. Once both events have come, it is known.
func TestAnEndIsWitnessedByTheWatchAlone(t *testing.T) {
	v, c, at := view(t)
	n, m := node("n"), node("m")
	failed := worker(v, n, 1, running)
	probe := v.Builder.Probe(target(m), v.Config.For(nil), "uid-n/1", "g")
	probe.UID = "probe"
	running(probe)
	v.Tracker.ObservePod(failed)
	v.Tracker.ObservePod(probe)
	exited(0)(probe) // it ended first
	exited(1)(failed)
	c.pods = []corev1.Pod{*failed, *probe}
	look := func() (f, p workerpod.FirstSeen) {
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
	v.Tracker.ObservePod(probe)
	if f, p := look(); !p.Witnessed || p.Result.After(f.Result) {
		t.Errorf("the probe's has: failed %+v, probe %+v", f, p)
	}
	at.pass(time.Second)
	v.Tracker.ObservePod(failed)
	if f, p := look(); !p.Witnessed || !f.Witnessed || !p.Result.Before(f.Result) {
		t.Errorf("both have: failed %+v, probe %+v", f, p)
	}
}

func TestAVanishedAttemptIsRemembered(t *testing.T) {
	v, c, _ := view(t)
	n := node("n")
	gone := func(p *corev1.Pod) {
		v.Tracker.ObservePod(p)
		v.Tracker.PodGone(workerpod.Observe(p), p)
	}
	gather := func() decide.Input {
		in, err := v.Gather(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	gone(worker(v, n, 1, exited(1)))
	if in := gather(); in.Vanished.Number != 0 {
		t.Errorf("one that had a result: %d", in.Vanished.Number)
	}
	gone(worker(v, n, 2, running))
	want := attempt.Basis{BootID: n.Status.NodeInfo.BootID, Checks: v.Builder.Checks("")}
	if in := gather(); in.Vanished.Number != 2 || in.Vanished.Basis != want {
		t.Errorf("vanished %+v, want one with %+v", in.Vanished, want)
	}
	gone(worker(v, n, 3, exited(1), terminating))
	if in := gather(); in.Vanished.Number != 3 {
		t.Errorf("vanished %d: want one that ended for its deletion", in.Vanished.Number)
	}
	gone(worker(v, n, 4, exited(0), terminating))
	if in := gather(); in.Vanished.Number != 3 {
		t.Errorf("vanished %d: one that passed did not", in.Vanished.Number)
	}
	gone(worker(v, n, 5, exited(1), terminating, func(p *corev1.Pod) {
		p.Annotations[workerpod.AnnotationRecorded] = "true"
	}))
	if in := gather(); in.Vanished.Number != 3 {
		t.Errorf("vanished %d: one that is recorded did not", in.Vanished.Number)
	}
	again := node("n", func(n *corev1.Node) { n.UID = "another" })
	if in, _ := v.Gather(t.Context(), again); in.Vanished.Number != 0 {
		t.Errorf("of an earlier node of the name: %d", in.Vanished.Number)
	}
	if v.Tracker.NodeGone("n"); len(v.Tracker.nodes) != 0 || len(v.Tracker.pods) != 0 {
		t.Errorf("left: %v", v.Tracker.nodes)
	}
	if in := gather(); in.Vanished.Number != 0 {
		t.Errorf("left: %d", in.Vanished.Number)
	}
	c.pods = nil
}

func TestTheEndOfAnEarlierNodesPodsChangesNothing(t *testing.T) {
	v, _, _ := view(t)
	earlier, n := node("n"), node("n", func(n *corev1.Node) { n.UID = "later" })
	v.Tracker.FinishDryRun(of("n", "later"))
	p := worker(v, earlier, 1, running)
	v.Tracker.PodGone(workerpod.Observe(p), p)
	if in, err := v.Gather(t.Context(), n); err != nil || !in.DryRunDone || in.Vanished.Number != 0 {
		t.Errorf("%+v, %v", in, err)
	}
}

func TestAnEventThatNoWriteGuardsIsEmittedOnce(t *testing.T) {
	v, _, _ := view(t)
	in := of("n", "u1")
	if !v.Tracker.FirstEvent(in, "a") || v.Tracker.FirstEvent(in, "a") || !v.Tracker.FirstEvent(in, "b") || !v.Tracker.FirstEvent(of("m", "u2"), "b") || !v.Tracker.FirstEvent(of("n", "u3"), "b") {
		t.Error("an event is emitted once for each key and node")
	}
}

func TestQuietKeepsAccountForEachNode(t *testing.T) {
	v, _, at := view(t)
	in := of("n", "u1")
	want := decide.Plan{Condition: &marks.Condition{Status: corev1.ConditionUnknown, Reason: marks.ReasonVerifying, Message: "m"}}
	if write, wait := v.Tracker.ConditionDue(in, want); write || wait != 5*time.Second {
		t.Fatalf("at first: %v, %s", write, wait)
	}
	at.pass(3 * time.Second)
	if write, wait := v.Tracker.ConditionDue(of("m", "u2"), want); write || wait != 5*time.Second {
		t.Errorf("another node: %v, %s", write, wait)
	}
	if write, wait := v.Tracker.ConditionDue(in, want); write || wait != 2*time.Second {
		t.Errorf("after 3 s: %v, %s", write, wait)
	}
	settled := of("settled", "u3")
	settled.Node.Condition = &corev1.NodeCondition{Status: want.Condition.Status, Reason: want.Condition.Reason, Message: want.Condition.Message,
		LastTransitionTime: metav1.NewTime(want.Condition.Since)}
	if write, wait := v.Tracker.ConditionDue(settled, want); write || wait != 0 || v.Tracker.nodes["settled"] != nil {
		t.Errorf("write %v, wait %s, remembered %+v", write, wait, v.Tracker.nodes["settled"])
	}
	if write, _ := v.Tracker.ConditionDue(in, decide.Plan{}); write {
		t.Error("nothing was written")
	}
	at.pass(3 * time.Second)
	if write, _ := v.Tracker.ConditionDue(in, want); write {
		t.Error("what was not wanted in between counts from its beginning")
	}
	at.pass(5 * time.Second)
	if write, _ := v.Tracker.ConditionDue(in, want); !write {
		t.Error("it lasted, and is not written")
	}
}

// A refusal is reported at once, and another error once it has lasted for a minute, with the text of the first.
func TestAFailureThatLastsIsReported(t *testing.T) {
	v, _, at := view(t)
	in, other := of("n", "u1"), of("m", "u2")
	later := func(text string) error { return apierrors.NewInternalError(errors.New(text)) }
	conflict := apierrors.NewConflict(corev1.Resource("nodes"), "n", errors.New("changed"))
	for i, step := range []struct {
		in   decide.Input
		err  error
		pass time.Duration // before it
		want string        // a part of it
	}{
		{in: in, err: later("first")},
		{in: in, err: later("second"), pass: 59 * time.Second},
		{in: other, err: later("other"), pass: time.Second},
		{in: in, err: later("third"), want: "first"},
		{in: in, err: nil},
		{in: in, err: later("fourth")},
		{in: in, err: conflict, pass: 30 * time.Second},
		{in: in, err: later("fifth"), pass: 30 * time.Second},
		{in: in, err: io.ErrUnexpectedEOF, pass: time.Minute, want: "fifth"},
		{in: in, err: apierrors.NewForbidden(corev1.Resource("nodes"), "n", errors.New("no")), want: "forbidden"},
		{in: in, err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: 403, Status: "Failure"}}, want: ""},
		{in: of("n", "u3"), err: later("another node of the name"), pass: time.Hour},
	} {
		at.pass(step.pass)
		got := v.Tracker.Fails(step.in, "it failed", step.err)
		said := v.Tracker.WithRefused(step.in, &marks.Condition{Status: corev1.ConditionFalse, Message: "m"}).Message
		if (got == "") != (step.want == "") || !strings.Contains(got, step.want) || strings.Contains(said, "it failed: ") != (got != "") {
			t.Errorf("%d: reported %q, condition %q", i, got, said)
		}
	}
}

// In a dry run, the mark on the pod is the only record.
func TestADryRunRemembersItsAttempt(t *testing.T) {
	v, c, _ := view(t)
	n := node("n")
	v.Tracker.DryRun = true
	kept := worker(v, n, 1, exited(0))
	kept.Annotations[workerpod.AnnotationRecorded] = "true"
	dryRunDone := func() bool {
		in, err := v.Gather(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return in.DryRunDone
	}
	if dryRunDone() {
		t.Error("before the attempt")
	}
	if c.pods = []corev1.Pod{*kept}; !dryRunDone() {
		t.Error("its successor does it again")
	}
	c.pods = nil
	if v.Tracker.FinishDryRun(of("n", "uid-n")); !dryRunDone() {
		t.Error("after the pod went it is done again")
	}
	v.Tracker.DryRun, c.pods = false, []corev1.Pod{*kept}
	if v.Tracker.NodeGone("n"); dryRunDone() {
		t.Error("a pod that is kept for its logs is no dry run")
	}
}

// A successor counts from its own first observation. So does a process that observes that the taint comes back.
func TestSinceWhenANodeMustBeVerified(t *testing.T) {
	v, _, at := view(t)
	tainted := node("n")
	open := node("n", func(n *corev1.Node) { n.Spec.Taints = nil })
	since := func(n *corev1.Node) time.Time {
		in, err := v.Gather(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return in.NeedsVerificationSince
	}
	first := v.Tracker.Now()
	if got := since(tainted); !got.Equal(first) {
		t.Errorf("at first %s, want %s", got, first)
	}
	at.pass(time.Minute)
	if got := since(tainted); !got.Equal(first) {
		t.Errorf("later %s, want %s", got, first)
	}
	if got := since(open); !got.IsZero() {
		t.Errorf("of a node that need not be: %s", got)
	}
	if got := since(tainted); !got.Equal(v.Tracker.Now()) {
		t.Errorf("once the taint is back: %s", got)
	}
	at.pass(time.Minute)
	if got := since(node("n", func(n *corev1.Node) { n.UID = "another" })); !got.Equal(v.Tracker.Now()) {
		t.Errorf("of another node of the name: %s", got)
	}
	if v.Observe(tainted).NeedsVerificationSince != (time.Time{}) {
		t.Error("a scrape keeps account")
	}
}

// Only a node whose creation this process observed has a timeline. It ends when this process, or any other client,
// releases the node.
func TestTimelinesOfNewNodes(t *testing.T) {
	v, _, at := view(t)
	in := v.Observe(node("n"))
	v.Tracker.Decided(in, decide.Plan{Step: decide.StepStart})
	if spent := v.Tracker.Released(in); spent != nil {
		t.Errorf("a node from before: %v", spent)
	}
	v.Tracker.NodeCreated(in)
	at.pass(3 * time.Second)
	v.Tracker.Decided(in, decide.Plan{Unmet: []decide.Unmet{{Kind: decide.UnmetSlot}}})
	at.pass(2 * time.Second)
	other := in
	other.Node.UID = "another"
	if spent := v.Tracker.Released(other); spent != nil {
		t.Errorf("another node of the name: %v", spent)
	}
	if spent := v.Tracker.Released(in); spent[decide.PhaseStart] != 3*time.Second || spent[decide.PhaseSlot] != 2*time.Second || len(spent) != 2 {
		t.Errorf("%v", spent)
	}
	if spent := v.Tracker.Released(in); spent != nil {
		t.Errorf("counted again: %v", spent)
	}
	v.Tracker.NodeCreated(in)
	open := in
	open.Node.Gated = false
	v.Tracker.Decided(open, decide.Plan{})
	if spent := v.Tracker.Released(in); spent != nil {
		t.Errorf("one that somebody else released: %v", spent)
	}
	v.Tracker.NodeCreated(open)
	if spent := v.Tracker.Released(open); spent != nil {
		t.Errorf("one that was created without the taint: %v", spent)
	}
}

// A node counts once for each thing that it waits for. It no longer counts after the wait or after the node's end.
func TestWaitingNodes(t *testing.T) {
	v, _, _ := view(t)
	for _, name := range []string{"a", "b"} {
		in := of(name, name)
		in.Node.Owner.Pool = "p"
		pods := decide.Unmet{Kind: "pods", Name: "ns app=agent"}
		v.Tracker.Decided(in, decide.Plan{Unmet: []decide.Unmet{pods, {Kind: "conditions", Name: "A"}, pods}})
	}
	agent := decide.WaitingLabels{For: "pods ns app=agent", Pool: "p"}
	if got := v.Tracker.Waiting(); got[agent] != 2 || got[decide.WaitingLabels{For: "conditions A", Pool: "p"}] != 2 || len(got) != 2 {
		t.Errorf("%v", got)
	}
	v.Tracker.Decided(of("a", "a"), decide.Plan{})
	if got := v.Tracker.Waiting(); got[agent] != 1 {
		t.Errorf("one of them waits no more: %v", got)
	}
	v.Tracker.NodeGone("b")
	if got := v.Tracker.Waiting(); len(got) != 0 {
		t.Errorf("both are gone: %v", got)
	}
}

// A pod that this process created is under way from then on, even if a watch first shows it after it has ended.
func TestAPodThatThisProcessCreatedIsKnown(t *testing.T) {
	v, _, at := view(t)
	p := worker(v, node("n"), 1)
	began := at.at
	v.Tracker.Created(p)
	at.pass(time.Second)
	want := workerpod.FirstSeen{First: began, UnderWay: true, Result: at.at, Witnessed: true}
	if got := v.Tracker.ObservePod(worker(v, node("n"), 1, exited(1))).Seen; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	foreign := worker(v, node("m"), 1)
	v.Tracker.Created(foreign)
	other := worker(v, node("m"), 1, exited(1))
	other.UID = "another"
	if got := v.Tracker.ObservePod(other).Seen; got.UnderWay || got.Witnessed {
		t.Errorf("another pod of the name: %+v", got)
	}
}
