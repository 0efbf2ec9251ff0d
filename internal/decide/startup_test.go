package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

func noSandbox(o *workerpod.Observation) { o.Startup = "its sandbox is not ready" }

func inInit(o *workerpod.Observation) { o.InitContainer, o.Seen.Init = "warm", o.Seen.First }

// A worker that does not start says what its status and its last Warning event say, while it is pending for a while and
// at its end. The events of a pod that starts soon, or that waits for something else, are not read.
func TestWhatKeepsAWorkerFromStarting(t *testing.T) {
	warned := world{warning: "last warning: FailedCreatePodSandBox: no address"}
	const status, event = "its sandbox is not ready", "FailedCreatePodSandBox: no address"
	for name, tc := range map[string]struct {
		pod      workerpod.Observation
		asks     bool
		recorded bool
		says     []string
		not      []string
		wait     time.Duration
	}{
		"young":                 {pod: pod(1, pending, noSandbox, seenFor(10*time.Second)), not: []string{status, event}, wait: 20 * time.Second},
		"slow":                  {pod: pod(1, pending, noSandbox, seenFor(30*time.Second)), asks: true, says: []string{"is pending, attempt 1; " + status + "; last warning: " + event}, wait: 270 * time.Second},
		"slow, in its init":     {pod: pod(1, pending, noSandbox, seenFor(40*time.Second), inInit), asks: true, says: []string{"in init container warm; " + status, event}, wait: 260 * time.Second},
		"not started in time":   {pod: pod(1, pending, noSandbox, seenFor(301*time.Second)), asks: true, recorded: true, says: []string{"did not start within worker.startTimeoutSeconds (5m0s); " + status, event}},
		"init not in time":      {pod: pod(1, pending, noSandbox, seenFor(301*time.Second), inInit), asks: true, recorded: true, says: []string{"init container warm did not end", status, event}},
		"running":               {pod: pod(1, seenFor(60*time.Second)), not: []string{event}, wait: 65 * time.Second},
		"unschedulable for now": {pod: pod(1, pending, noSandbox, seenFor(40*time.Second), unschedulable(time.Second)), says: []string{"kube-scheduler: no node"}, not: []string{event}, wait: 9 * time.Second},
		"terminating":           {pod: pod(1, pending, terminating, noSandbox, seenFor(40*time.Second)), not: []string{event}, wait: 260 * time.Second},
		"deleted, and past it":  {pod: pod(1, pending, terminating, noSandbox, seenFor(301*time.Second)), recorded: true, says: []string{"was deleted"}, not: []string{event}},
	} {
		in := given(with(tc.pod))
		plan, asked := ask(t, in, warned)
		message := ""
		if plan.Condition != nil {
			message = plan.Condition.Message
		}
		if tc.recorded {
			message = plan.Change.Record.LastMessage
		}
		if (plan.Step == StepRecord) != tc.recorded || slices.Contains(asked, NeedWarning) != tc.asks || plan.RequeueAfter != tc.wait {
			t.Errorf("%s: step %q, asked for %v, again in %s; want %s", name, plan.Step, asked, plan.RequeueAfter, tc.wait)
		}
		for _, want := range tc.says {
			if !strings.Contains(message, want) {
				t.Errorf("%s: %q lacks %q", name, message, want)
			}
		}
		for _, not := range tc.not {
			if strings.Contains(message, not) {
				t.Errorf("%s: %q", name, message)
			}
		}
		if tc.recorded && plan.Recorded.Result.Outcome != attempt.Inconclusive {
			t.Errorf("%s: %+v", name, plan.Recorded)
		}
	}
	// Without a Warning event yet, they are read again soon.
	if plan, _ := ask(t, given(with(pod(1, pending, noSandbox, seenFor(40*time.Second)))), world{}); plan.RequeueAfter != time.Minute {
		t.Errorf("again in %s", plan.RequeueAfter)
	}
}
