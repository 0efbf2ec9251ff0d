package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// The last Warning event is the one that happened last, in whichever of the two forms of events.
func TestLastWarning(t *testing.T) {
	at := func(d time.Duration) metav1.Time {
		return metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(d))
	}
	old := corev1.Event{Type: "Warning", Reason: "NetworkNotReady", Message: "cni plugin not initialized", FirstTimestamp: at(0), LastTimestamp: at(9 * time.Second), Count: 5}
	later := corev1.Event{Type: "Warning", Reason: "FailedCreatePodSandBox", Message: "no address\n", FirstTimestamp: at(0), LastTimestamp: at(20 * time.Second), Count: 3}
	series := corev1.Event{Type: "Warning", Reason: "FailedScheduling", Message: "no node", EventTime: metav1.NewMicroTime(at(0).Time),
		Series: &corev1.EventSeries{Count: 7, LastObservedTime: metav1.NewMicroTime(at(30 * time.Second).Time)}}
	once := corev1.Event{Type: "Warning", Reason: "FailedMount", Message: "timed out", EventTime: metav1.NewMicroTime(at(40 * time.Second).Time)}
	normal := corev1.Event{Type: "Normal", Reason: "Pulling", LastTimestamp: at(time.Hour)}
	endless := corev1.Event{Type: "Warning", Reason: "FailedMount", Message: strings.Repeat("x\n", 1<<16), LastTimestamp: at(0)}
	for name, tc := range map[string]struct {
		events []corev1.Event
		want   string
	}{
		"none":             {nil, ""},
		"a Normal one":     {[]corev1.Event{normal}, ""},
		"the later":        {[]corev1.Event{later, old, normal}, "last warning (FailedCreatePodSandBox, 3 times): no address"},
		"a series":         {[]corev1.Event{old, series, later}, "last warning (FailedScheduling, 7 times): no node"},
		"one of its form":  {[]corev1.Event{once, series}, "last warning (FailedMount): timed out"},
		"without any time": {[]corev1.Event{{Type: "Warning", Reason: "FailedMount", Message: "m"}}, "last warning (FailedMount): m"},
	} {
		if got := lastWarning(tc.events); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if got := lastWarning([]corev1.Event{endless}); len(got) > attempt.MaxMessage || strings.Contains(got, "\n") {
		t.Errorf("%d bytes", len(got))
	}
}

// lister answers lists of events, and counts them.
type lister struct {
	client.Reader
	events []corev1.Event
	err    error
	lists  int
	asked  client.ListOptions
}

func (l *lister) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	l.lists, l.asked = l.lists+1, *(&client.ListOptions{}).ApplyOptions(opts)
	list.(*corev1.EventList).Items = l.events
	return l.err
}

// A warning is read once for a pod and once more at its end, within a limit. One that cannot be read keeps no node from
// being decided.
func TestWarningsAreReadRarely(t *testing.T) {
	tracker := NewTracker(time.Now, false)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "verify-n-1", UID: "p1"}}
	tracker.Created(pod)
	in := decide.Input{Pods: []workerpod.Observation{{Name: "verify-n-1", UID: "p1", Purpose: workerpod.PurposeVerify, Attempt: attempt.Attempt{Number: 1}}}}
	api := &lister{}
	w := Warnings{Live: api, Namespace: "workers", Tracker: tracker, Limit: flowcontrol.NewTokenBucketPassiveRateLimiter(1e-9, 5)}
	ask := func(fresh bool, want string, lists int) {
		t.Helper()
		if got := w.Last(t.Context(), in, fresh); !strings.Contains(got, want) || (want == "") != (got == "") || api.lists != lists {
			t.Errorf("%q after %d lists, want %q after %d", got, api.lists, want, lists)
		}
	}
	ask(false, "", 1)
	api.events = []corev1.Event{{Type: "Warning", Reason: "FailedMount", Message: "one"}}
	ask(false, "FailedMount): one", 2)
	uid, _ := api.asked.FieldSelector.RequiresExactMatch("involvedObject.uid")
	kind, _ := api.asked.FieldSelector.RequiresExactMatch("type")
	if uid != "p1" || kind != "Warning" || api.asked.Namespace != "workers" || api.asked.Limit == 0 {
		t.Errorf("it lists %+v", api.asked)
	}
	api.events[0].Message = "two"
	ask(false, "one", 2)
	ask(true, "two", 3)
	api.err = apierrors.NewForbidden(corev1.Resource("events"), "", errors.New("no right"))
	ask(true, "its events cannot be read", 4)
	api.err = apierrors.NewServiceUnavailable("later")
	ask(true, "two", 5)
	api.err = nil
	ask(true, "two", 5) // the limit is used up
	tracker.PodGone(in.Pods[0], pod)
	if tracker.Warning("p1") != "" {
		t.Error("it is remembered after the pod")
	}
	in.Pods = nil
	ask(true, "", 5)
}
