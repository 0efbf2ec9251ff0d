package remediation_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
	"github.com/kube-node-ready/kube-node-ready/test/world/termination"
)

// An exit code that no worker chose deletes nothing, although the same pod passes on another node: the image of another
// architecture (node-problem-detector#797, talos#11268), a shell as entry point, a crash of Go's runtime.
func TestExitCodesOfOtherProgramsDeleteNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		code   int
		report string
	}{
		"the image of another architecture": {1, "exec /kube-node-ready-worker: exec format error"},
		"a shell as entry point":            {1, ""},
		"a crash of the runtime":            {2, "panic: runtime error"},
		"a report of another node":          {1, termination.Message("another", 1)},
		"a report without a failure":        {1, `{"version":1,"node":"NODE","outcome":"failed","checks":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`}}`)
			w.Verified("control")
			w.Exit = world.VerifyExits(tc.code)
			w.Report = func(p *corev1.Pod, code int) string {
				if world.IsProbe(p) || code == 0 {
					return termination.Message(p.Annotations[workerpod.AnnotationNode], code)
				}
				return strings.Replace(tc.report, "NODE", p.Annotations[workerpod.AnnotationNode], 1)
			}
			n := w.Node("n", world.Pooled)
			w.Claim(n)
			w.Lead().RunFor(time.Minute)
			r := w.Record(n.Name)
			if w.Deleting(n.Name) || r.Attempts != 0 || r.LastOutcome != attempt.Inconclusive || r.LastReason != attempt.ReasonNoReport {
				t.Errorf("deleted: %t, record %+v", w.Deleting(n.Name), r)
			}
			w.ExpectCondition(n.Name, "Unknown WorkerInconclusive")
			if w.EventCount(n.Name, decide.EventFailed) > 0 {
				t.Errorf("events: %v", w.Events)
			}
		})
	}
}
