//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// marks is what the product writes on a node, read as a user's script would.
type marks struct {
	uid, bootID               string
	tainted, labelled, record bool
	status                    corev1.ConditionStatus
	reason, message           string
	recorded                  record
}

type record struct {
	NodeUID     string `json:"nodeUID"`
	BootID      string `json:"bootID"`
	Sequence    int    `json:"sequence"`
	Attempts    int    `json:"attempts"`
	LastOutcome string `json:"lastOutcome"`
	LastCheck   string `json:"lastCheck"`
	LastReason  string `json:"lastReason"`
	DurationMs  int    `json:"durationMs"`
}

func (m marks) String() string {
	return fmt.Sprintf("tainted=%t labelled=%t condition=%s/%s %q record=%+v", m.tainted, m.labelled, m.status, m.reason, m.message, m.recorded)
}

func (s *suite) marks(ctx context.Context, name string) (marks, error) {
	node, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return marks{}, err
	}
	m := marks{uid: string(node.UID), bootID: node.Status.NodeInfo.BootID, labelled: node.Labels[verifiedLabel] == "true"}
	for _, taint := range node.Spec.Taints {
		m.tainted = m.tainted || taint.Key == taintKey
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == conditionType {
			m.status, m.reason, m.message = condition.Status, condition.Reason, condition.Message
		}
	}
	raw, ok := node.Annotations[recordKey]
	m.record = ok
	if ok {
		if err := json.Unmarshal([]byte(raw), &m.recorded); err != nil {
			return m, fmt.Errorf("record of %s: %w", name, err)
		}
	}
	return m, nil
}

// awaitVerified waits until a node is free and says so, in every one of its marks.
func (s *suite) awaitVerified(ctx context.Context, t *testing.T, limit time.Duration, names ...string) {
	t.Helper()
	for _, name := range names {
		eventually(ctx, t, limit, name+" is verified", func() error { return s.verified(ctx, name) })
	}
}

func (s *suite) verified(ctx context.Context, name string) error {
	m, err := s.marks(ctx, name)
	switch {
	case err != nil:
		return err
	case m.tainted || !m.labelled || m.status != corev1.ConditionTrue || m.reason != "ChecksPassed" || m.recorded.NodeUID != m.uid || m.recorded.BootID != m.bootID:
		return fmt.Errorf("it is not: %s", m)
	}
	return nil
}

// awaitFailing waits until a node is gated because the named check failed, or, with an empty
// name, any. A node that worked is gated at its second failure.
func (s *suite) awaitFailing(ctx context.Context, t *testing.T, limit time.Duration, name, check string) {
	t.Helper()
	eventually(ctx, t, limit, name+" fails check "+check, func() error {
		m, err := s.marks(ctx, name)
		switch {
		case err != nil:
			return err
		case !m.tainted || m.labelled || m.recorded.LastOutcome != "failed" || check != "" && m.recorded.LastCheck != check:
			return fmt.Errorf("it does not: %s", m)
		case m.reason != "ChecksFailed" && m.reason != "Verifying" && m.reason != "RetriesExhausted":
			return fmt.Errorf("the condition does not say so: %s", m)
		case !strings.Contains(m.message, "check "+check):
			return fmt.Errorf("the condition does not name the check: %s", m)
		}
		return nil
	})
}

// awaitSharedFailure waits until a node that worked says that its failure of the named check counts for nothing, because
// others share it or none can be compared. Its gate stays open.
func (s *suite) awaitSharedFailure(ctx context.Context, t *testing.T, limit time.Duration, name, check string) {
	t.Helper()
	eventually(ctx, t, limit, name+" shares its failure of check "+check, func() error {
		m, err := s.marks(ctx, name)
		switch {
		case err != nil:
			return err
		case m.tainted:
			t.Fatalf("its gate was closed: %s", m)
		case m.recorded.LastOutcome != "inconclusive" || m.recorded.LastReason != "SharedFailure" || m.recorded.Attempts != 0:
			return fmt.Errorf("it does not: %s", m)
		case m.reason != "WorkerInconclusive" && m.reason != "Verifying" || !strings.Contains(m.message, "check "+check):
			return fmt.Errorf("the condition does not say so: %s", m)
		}
		return nil
	})
}

// reverify asks for a verification as a person does.
func (s *suite) reverify(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	s.kubectl(ctx, t, "label", "node", name, verifiedLabel+"-")
}

// report is what a worker says in its termination message.
type report struct {
	Version int          `json:"version"`
	Node    string       `json:"node"`
	Outcome string       `json:"outcome"`
	Checks  []checkState `json:"checks"`
}

type checkState struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// lastReport is the report of the node's newest failed worker pod, by check.
func (s *suite) lastReport(ctx context.Context, t *testing.T, name string) map[string]checkState {
	t.Helper()
	var newest *corev1.Pod
	eventually(ctx, t, 10*time.Second, "a failed worker pod of "+name+" is kept", func() error {
		pods, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			LabelSelector: "app.kubernetes.io/component=worker", FieldSelector: "spec.nodeName=" + name + ",status.phase=Failed",
		})
		if err != nil {
			return err
		}
		newest = nil
		for i, pod := range pods.Items {
			terminated := len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].State.Terminated != nil
			if terminated && (newest == nil || pod.CreationTimestamp.After(newest.CreationTimestamp.Time)) {
				newest = &pods.Items[i]
			}
		}
		if newest == nil {
			return fmt.Errorf("there is none among %d failed pods", len(pods.Items))
		}
		return nil
	})
	r := decode[report](t, newest.Status.ContainerStatuses[0].State.Terminated.Message)
	if r.Node != name || r.Version != 1 {
		t.Fatalf("the report of pod %s is for node %q, version %d", newest.Name, r.Node, r.Version)
	}
	checks := map[string]checkState{}
	for _, c := range r.Checks {
		checks[c.Name] = c
	}
	return checks
}

// expectChecks compares a report with what a fault should and should not touch.
func expectChecks(t *testing.T, checks map[string]checkState, outcome string, names ...string) {
	t.Helper()
	for _, name := range names {
		if got := checks[name]; got.Outcome != outcome {
			t.Errorf("check %s: outcome %q (%s: %s), should be %s", name, got.Outcome, got.Reason, got.Message, outcome)
		}
	}
}

// awaitEvent waits for an event on a node.
func (s *suite) awaitEvent(ctx context.Context, t *testing.T, limit time.Duration, name, reason string) {
	t.Helper()
	eventually(ctx, t, limit, "event "+reason+" on "+name, func() error {
		events, err := s.client.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + name + ",reason=" + reason})
		if err == nil && len(events.Items) == 0 {
			err = fmt.Errorf("there is none")
		}
		return err
	})
}
