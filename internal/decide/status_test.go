package decide

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// A new leader leaves a node alone that is done. So nothing may be left to do for it: its condition must show what its
// record says.
func TestDone(t *testing.T) {
	shown := func(in *Input) {
		in.Node.Condition = &corev1.NodeCondition{Type: marks.ConditionType, Status: corev1.ConditionTrue, Reason: marks.ReasonChecksPassed}
	}
	for name, tc := range map[string]struct {
		in   Input
		done bool
	}{
		"verified, and the condition shows it": {in: verified(shown), done: true},
		"the condition is missing":             {in: verified()},
		"somebody removed the record":          {in: verified(shown, func(in *Input) { in.Node.HasRecord, in.Node.Record = false, marks.Record{} })},
		"it failed":                            {in: failing(2, shown)},
		"a request":                            {in: verified(shown, requests("a"))},
		"a condition asks for its remediation": {in: verified(shown, func(in *Input) {
			in.Node.RemediationConditions = []corev1.NodeCondition{{Type: "a/B"}}
		})},
		"the last attempt was inconclusive": {in: verified(shown, func(in *Input) { in.Node.Record.LastOutcome = attempt.Inconclusive })},
	} {
		if Done(tc.in) != tc.done {
			t.Errorf("%s: done: want %t", name, tc.done)
		}
	}
}
