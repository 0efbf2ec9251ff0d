package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// A node is suspect since this process first observed the present transition.
func TestSuspectSince(t *testing.T) {
	v, _, at := view(t, func(c *config.Config) {
		c.NodeManagement.Reverify.OnConditions = []config.SuspectCondition{{Type: "Bad", Status: corev1.ConditionTrue}}
	})
	began := at.now()
	first := metav1.NewTime(began.Add(-time.Hour))
	since := func(status corev1.ConditionStatus, transition metav1.Time) (time.Duration, bool) {
		t.Helper()
		in := v.Observe(node("n", func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: "Bad", Status: status, LastTransitionTime: transition}}
		}))
		at, ok := v.Tracker.observeSuspects(in)["Bad"]
		return at.Sub(began), ok
	}
	expect := func(what string, want time.Duration, status corev1.ConditionStatus, transition metav1.Time) {
		t.Helper()
		if got, ok := since(status, transition); !ok || got != want {
			t.Errorf("%s: since %s (%t), want %s", what, got, ok, want)
		}
	}
	if _, ok := since(corev1.ConditionFalse, first); ok {
		t.Error("a condition of another status makes it suspect")
	}
	expect("at first", 0, corev1.ConditionTrue, first)
	at.pass(time.Minute)
	expect("the same transition", 0, corev1.ConditionTrue, first)
	expect("a later transition", time.Minute, corev1.ConditionTrue, metav1.NewTime(at.now()))
	if _, ok := since(corev1.ConditionFalse, first); ok {
		t.Error("it is suspect after the condition is gone")
	}
	at.pass(time.Minute)
	expect("the first transition again", 2*time.Minute, corev1.ConditionTrue, first)
}

// The time for which the API server has refused a pod counts from its first refusal of that same pod.
func TestPodRefusedFor(t *testing.T) {
	v, _, at := view(t)
	in := of("n", "uid-n")
	for _, step := range []struct {
		pod  string
		want time.Duration
	}{{"one", 0}, {"one", time.Minute}, {"two", 0}, {"two", time.Minute}} {
		if got := v.Tracker.PodRefused(in, step.pod); got != step.want {
			t.Errorf("%s is refused for %s, want %s", step.pod, got, step.want)
		}
		at.pass(time.Minute)
	}
}

// The condition names the request that the API server refuses, until it is accepted or the node is verified.
func TestConditionNamesRefusals(t *testing.T) {
	v, _, _ := view(t)
	in := of("n", "uid-n")
	waiting := &marks.Condition{Status: corev1.ConditionUnknown, Message: "waiting"}
	if got := v.Tracker.WithRefused(in, waiting); got != waiting {
		t.Errorf("nothing is refused: %+v", got)
	}
	v.Tracker.Refused(in, "the taint", "no right")
	v.Tracker.Refused(in, "a label", "policy")
	if got := v.Tracker.WithRefused(in, waiting).Message; got != "waiting; a label: policy; the taint: no right" {
		t.Errorf("the condition says %q", got)
	}
	verified := &marks.Condition{Status: corev1.ConditionTrue, Message: "passed"}
	if got := v.Tracker.WithRefused(in, verified).Message; got != "passed" {
		t.Errorf("of a verified node it says %q", got)
	}
	v.Tracker.Refused(in, "the taint", "")
	v.Tracker.Refused(of("m", "uid-m"), "the taint", "")
	if got := v.Tracker.WithRefused(in, waiting).Message; got != "waiting; a label: policy" {
		t.Errorf("after one is taken it says %q", got)
	}
}

// While the watch of worker pods is refused, the condition of every node that is not verified says so: the pods of
// other nodes hold its slot. That ends some time after the last refusal.
func TestConditionNamesARefusedWatch(t *testing.T) {
	v, _, at := view(t)
	in := of("n", "uid-n")
	waiting := &marks.Condition{Status: corev1.ConditionUnknown, Message: "waiting"}
	v.Tracker.PodsUnwatched("cannot watch pods")
	want := "waiting; results of worker pods come late: cannot watch pods"
	if got := v.Tracker.WithRefused(in, waiting).Message; got != want {
		t.Errorf("the condition says %q", got)
	}
	at.pass(time.Minute)
	v.Tracker.Refused(in, "the taint", "no right")
	if got := v.Tracker.WithRefused(in, waiting).Message; got != want+"; the taint: no right" {
		t.Errorf("a minute later it says %q", got)
	}
	verified := &marks.Condition{Status: corev1.ConditionTrue, Message: "passed"}
	if got := v.Tracker.WithRefused(in, verified).Message; got != "passed" {
		t.Errorf("of a verified node it says %q", got)
	}
	at.pass(time.Minute)
	if got := v.Tracker.WithRefused(of("m", "uid-m"), waiting).Message; got != "waiting" {
		t.Errorf("once the watch is accepted it says %q", got)
	}
}
