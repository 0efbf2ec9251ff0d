package node_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// A worker whose sandbox the kubelet cannot make says so after half a minute, in the words of the kubelet's last Warning
// event on that pod, and so does the record of the attempt (amazon-vpc-cni-k8s#281, bottlerocket#3378). The events are
// read twice for the attempt.
func TestAWorkerThatDoesNotStartSaysWhatTheKubeletSays(t *testing.T) {
	w := world.OnServer(t, "")
	w.Exit = func(*corev1.Pod) int { return world.Stays }
	n := w.Node("n")
	l := w.Lead()
	l.Steps(2)
	pod := w.Pods(n.Name)[0]
	w.Status(&pod, `{"status":{"startTime":"2026-03-01T12:00:00Z","conditions":[{"type":"PodReadyToStartContainers","status":"False"}],
		"containerStatuses":[{"name":"worker","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"waiting":{"reason":"ContainerCreating"}}}]}}`)
	event := func(name, kind, reason, message string, uid bool, at time.Time) {
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}, Type: kind, Reason: reason, Message: message,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: w.Namespace, Name: pod.Name}, LastTimestamp: metav1.NewTime(at), Count: 4}
		if uid {
			e.InvolvedObject.UID = pod.UID
		}
		w.Create(e)
	}
	now := time.Now()
	event("a", "Warning", "NetworkNotReady", "cni plugin not initialized", true, now.Add(-time.Minute))
	event("b", "Warning", "FailedCreatePodSandBox", "add cmd: failed to assign an IP address to container", true, now)
	event("c", "Normal", "Pulled", "image", true, now.Add(time.Minute))
	event("d", "Warning", "FailedMount", "another pod of the name", false, now.Add(time.Minute))
	const says = "its sandbox is not ready (network, address or volumes); last warning (FailedCreatePodSandBox, 4 times): add cmd: failed to assign an IP address"
	l.RunFor(10 * time.Second)
	if c := w.ConditionText(n.Name); strings.Contains(c, "sandbox") {
		t.Errorf("after 10 s: %s", c)
	}
	l.RunFor(2 * time.Minute)
	if c := w.ConditionText(n.Name); !strings.Contains(c, "is pending, attempt 1; "+says) {
		t.Errorf("after two minutes: %s", c)
	}
	l.RunFor(3 * time.Minute)
	if r := w.Record(n.Name); r.LastReason != attempt.ReasonStartTimeout || !strings.Contains(r.LastMessage, "did not start within worker.startTimeoutSeconds (5m0s); "+says) {
		t.Errorf("record %+v", r)
	}
	reads := 0
	lists, _ := l.LiveLists()
	for _, list := range lists {
		if strings.Contains(strings.ToLower(list), "event") {
			reads++
		}
	}
	if reads != 2 || len(l.Errs) > 0 {
		t.Errorf("%d lists of events, errors %v", reads, l.Errs)
	}
}

// A missing right to list events keeps no node from being decided, and is said.
func TestForbiddenEvents(t *testing.T) {
	w := world.Begin(t, "")
	w.Exit = func(*corev1.Pod) int { return world.Stays }
	n := w.Node("n")
	l := w.Lead(func(l *world.Leader) { l.ForbidGet = func(kind string) bool { return kind == "EventList" } })
	l.RunFor(time.Minute)
	if c := w.ConditionText(n.Name); !strings.Contains(c, "the kubelet has not reported it; its events cannot be read") {
		t.Errorf("condition %s", c)
	}
	w.Exit = func(*corev1.Pod) int { return 0 }
	l.Drive()
	if _, f := w.Get(n.Name); f.Gated || len(l.Errs) > 0 {
		t.Errorf("gated %t, errors %v", f.Gated, l.Errs)
	}
}
