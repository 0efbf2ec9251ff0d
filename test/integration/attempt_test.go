package integration

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// profile adds one to the configuration, for nodes labelled pool=gpu.
func profile(settings map[string]any) func(map[string]any) {
	return func(c map[string]any) {
		p := map[string]any{"name": "gpu", "nodeSelector": map[string]any{"matchLabels": map[string]any{"pool": "gpu"}}}
		for k, v := range settings {
			p[k] = v
		}
		c["profiles"] = []any{p}
	}
}

// Karpenter adds a NodeClaim's labels at registration, when the first worker is under way: what that proves is not what the
// node has to prove.
func TestLabelArrivesWhileTheWorkerRuns(t *testing.T) {
	s := begin(t, execCheck("sleep", "5"), profile(map[string]any{
		"checks": []any{map[string]any{"name": "never", "type": "exec", "exec": map[string]any{"command": []any{"false"}}}}}))
	s.controller()
	n := s.node("a")
	s.whenRunning(n.Name, func(corev1.Pod) error {
		s.patchNode(n.Name, `{"metadata":{"labels":{"pool":"gpu"}}}`)
		return nil
	})
	f := s.becomes(n.Name, "failed by its profile's check", func(f marks.Facts) bool {
		if !f.Gated || f.Labelled {
			t.Fatalf("it was released by the checks of another profile: %+v", f)
		}
		return f.Record.LastCheck == "never"
	})
	if f.Record.Attempts < 1 || f.Record.Sequence < 2 {
		t.Errorf("%+v", f.Record)
	}
	s.hasEvents(n.Name, map[string]int{"VerificationInconclusive": 1}) // the superseded attempt
}

// Any configured taint gates a node, whatever its labels say, and a pass removes all of them.
func TestTaintOfAnotherProfile(t *testing.T) {
	s := begin(t, profile(map[string]any{"taints": []any{map[string]any{"key": "gpu/unverified", "effect": "NoSchedule"}}}))
	s.controller()
	n := s.node("a", func(n *nodeagent.NodeSpec) {
		n.Taints = []corev1.Taint{{Key: "gpu/unverified", Effect: corev1.TaintEffectNoSchedule}, gated, {Key: "foreign", Effect: corev1.TaintEffectNoSchedule}}
	})
	s.becomes(n.Name, "verified", isVerified)
	if have, _ := s.get(n.Name); len(have.Spec.Taints) != 1 || have.Spec.Taints[0].Key != "foreign" {
		t.Errorf("%v", have.Spec.Taints)
	}
}

// The gate closes before anything is waited for.
func TestReverifyClosesTheGateWhilePrerequisitesAreUnmet(t *testing.T) {
	s := begin(t, set("nodeManagement", map[string]any{"reverify": map[string]any{"taint": true},
		"prerequisites": map[string]any{"conditions": []any{map[string]any{"type": "Storage", "status": "True"}}}}))
	s.controller()
	n := s.node("a")
	s.must(nil, n.SetCondition(s.ctx, corev1.NodeCondition{Type: "Storage", Status: corev1.ConditionTrue}))
	s.becomes(n.Name, "verified", isVerified)
	s.must(nil, n.SetCondition(s.ctx, corev1.NodeCondition{Type: "Storage", Status: corev1.ConditionFalse}))
	s.patchNode(n.Name, `{"metadata":{"labels":{"node-ready/verified":null}}}`)
	s.becomes(n.Name, "gated, and waiting", func(f marks.Facts) bool { return f.Gated && says(marks.ReasonWaitingForPrerequisites)(f) })
	s.must(nil, n.SetCondition(s.ctx, corev1.NodeCondition{Type: "Storage", Status: corev1.ConditionTrue}))
	s.becomes(n.Name, "verified again", isVerified)
}

// What "its log" refers to is there to be read, also for an attempt that proves nothing: its pod is kept.
func TestLogOfAnInconclusiveAttemptIsKept(t *testing.T) {
	s := begin(t, set("worker", map[string]any{"initContainers": []any{
		map[string]any{"name": "warm", "image": tools, "command": []any{"/bin/sleep", "not-a-number"}}}}),
		set("reconciliation", map[string]any{"initialBackoffSeconds": 60, "maxBackoffSeconds": 60}))
	s.controller()
	n := s.played("a", []act{initFails("warm")})
	f := s.becomes(n.Name, "inconclusive", func(f marks.Facts) bool { return f.Record.Inconclusive == 1 })
	if f.Record.LastReason != attempt.ReasonInitFailed {
		t.Errorf("%+v", f.Record)
	}
	s.stays(2*resync, n.Name, "waiting for its next attempt", func(f marks.Facts) bool { return f.Record.Sequence == 1 })
	if kept := s.workers(n.Name); len(kept) != 1 || kept[0].DeletionTimestamp != nil {
		t.Fatalf("%d pods", len(kept))
	}
}

// The present configuration decides when the next attempt is, not the one under which the last was recorded.
func TestRetriesFollowTheConfiguration(t *testing.T) {
	s := begin(t, set("reconciliation", map[string]any{"maxRetries": 1, "exhaustedRetrySeconds": -1}))
	first := s.controller()
	n := s.node("a", dns(nodeagent.DNSRefuses))
	s.becomes(n.Name, "exhausted", says(marks.ReasonRetriesExhausted))
	s.stays(2*resync, n.Name, "not tried again", func(f marks.Facts) bool { return f.Record.Sequence == 1 })
	first.Terminate(5 * time.Second)
	set("reconciliation", map[string]any{"maxRetries": 3})(s.config)
	second := s.controller()
	s.becomes(n.Name, "tried up to the raised limit", func(f marks.Facts) bool { return f.Record.Attempts == 3 && f.Record.Sequence == 3 })
	second.Terminate(5 * time.Second)
	set("reconciliation", map[string]any{"exhaustedRetrySeconds": 1})(s.config)
	s.controller()
	s.becomes(n.Name, "tried again", func(f marks.Facts) bool { return f.Record.Sequence > 4 })
}

// A record that was forged, or written on a fast clock, holds nobody back, and one that cannot be read keeps its guard.
func TestForgedRecords(t *testing.T) {
	s := begin(t)
	far := time.Now().Add(24 * 365 * time.Hour).UTC().Format(time.RFC3339)
	s.controller()
	for name, record := range map[string]string{
		"future":   `{"nodeUID":%q,"sequence":7,"attempts":1,"inconclusive":0,"lastOutcome":"failed","lastTime":"` + far + `","nextAttemptTime":"` + far + `"}`,
		"overflow": `{"nodeUID":%q,"sequence":2147483647,"attempts":2147483647,"inconclusive":2147483647,"lastOutcome":"failed"}`,
		"garbage":  `{"nodeUID":%q,"sequence":"seven"`,
	} {
		n := s.node(name, untainted)
		have, _ := s.get(n.Name)
		s.patchNode(n.Name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"taints":[{"key":%q,"value":"true","effect":"NoSchedule"}]}}`,
			marks.AnnotationRecord, fmt.Sprintf(record, have.UID), taintKey))
		f := s.becomes(n.Name, "verified", isVerified)
		if name == "future" && f.Record.Sequence != 8 || name != "future" && f.Record.Sequence != 1 {
			t.Errorf("%s: %+v", name, f.Record)
		}
	}
}

// A condition must not outlive our interest in a node.
func TestSkipClearsTheCondition(t *testing.T) {
	s := begin(t)
	s.controller()
	n := s.node("a", dns(nodeagent.DNSRefuses))
	s.becomes(n.Name, "failed", says(marks.ReasonChecksFailed))
	s.patchNode(n.Name, `{"metadata":{"annotations":{"node-ready/skip":"true"}}}`)
	s.becomes(n.Name, "without a condition", func(f marks.Facts) bool { return f.Condition == nil })
	s.patchNode(n.Name, `{"metadata":{"annotations":{"node-ready/skip":null}}}`)
	s.must(nil, n.SetDNS(nodeagent.DNSWorks))
	s.becomes(n.Name, "verified", isVerified)
}

// A namespace that is missing leaves a record, a condition and an event, and the node verifies once it is there.
func TestWorkerNamespaceIsMissing(t *testing.T) {
	s := begin(t)
	set("worker", map[string]any{"namespace": s.name + "-workers"})(s.config)
	s.controller()
	n := s.node("a")
	f := s.becomes(n.Name, "inconclusive", func(f marks.Facts) bool {
		return f.Record.Inconclusive > 1 && says(marks.ReasonWorkerInconclusive)(f)
	})
	if f.Record.LastReason != attempt.ReasonPodRefused || f.Record.Attempts != 0 {
		t.Errorf("%+v", f.Record)
	}
	s.hasEvents(n.Name, map[string]int{"VerificationInconclusive": 1})
}

// A leader that was stopped (SIGSTOP, a paused machine) goes on beside its successor: it must do nothing.
func TestStoppedLeaderDoesNothingWhenItWakes(t *testing.T) {
	s := begin(t, execCheck("sleep", "1"))
	created := s.creations()
	old := s.controller()
	s.becomes(s.node("first").Name, "verified by the first leader", isVerified)
	s.controller()
	old.Signal(syscall.SIGSTOP)
	var names []string
	for i := range 5 {
		names = append(names, s.node(fmt.Sprint(i)).Name)
	}
	s.becomes(names[0], "verified by the successor", isVerified)
	// The old one goes on with a queue full of nodes of which it has seen nothing.
	for i := range 20 {
		names = append(names, s.node(fmt.Sprint(100+i)).Name)
	}
	old.Signal(syscall.SIGCONT)
	select {
	case <-old.Done():
	case <-time.After(patience):
		t.Error("a leader that lost its lease goes on")
	}
	for _, name := range names {
		if f := s.becomes(name, "verified", isVerified); f.Record.Sequence != 1 || created.of(name) != 1 {
			t.Errorf("%s: %d workers, %+v", name, created.of(name), f.Record)
		}
	}
}
