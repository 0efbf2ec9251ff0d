package decide

import (
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// What kept a worker from starting proves nothing about its node, whatever the deadline: a namespace's default node
// selector (openshift/origin#19678), or a kubelet that counts pods that have ended (kubernetes#115325).
func TestAWorkerThatNeverStartedDeletesNoNode(t *testing.T) {
	for name, worker := range map[string]workerpod.Observation{
		"the kubelet rejects it": pod(1, inconclusively(attempt.ReasonKubeletRejected)),
		"it does not start":      pod(1, stuck),
		"no such image":          pod(1, imageMissing),
	} {
		for _, setting := range []config.OnDeadline{config.OnDeadlineHold, config.OnDeadlineRemediate, config.OnDeadlineRelease} {
			in := given(missedDeadline, with(worker))
			in.Config.Reconciliation.OnDeadline = setting
			all := world{probes: []workerpod.Observation{probe("m0", ended(attempt.Passed))}, fleet: deletable().fleet}
			plan, _ := ask(t, in, all)
			if r := plan.Change.Record; plan.Step != StepRecord || plan.Recorded.Result.Outcome != attempt.Inconclusive || r.Attempts != 0 || plan.Change.Gate != gateKeep {
				t.Fatalf("%s, %s: %+v", name, setting, plan)
			}
			if setting != config.OnDeadlineHold {
				continue // the user's word may end the round next, and is an attempt of its own
			}
			in.Node.Record, in.Pods = plan.Change.Record, nil
			if plan, _ = ask(t, in, all); plan.Step != StepNone {
				t.Errorf("%s: then %q", name, plan.Step)
			}
		}
	}
}
