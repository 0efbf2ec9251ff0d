package decide

import (
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// tidy finds the pod of the attempt that is under way, and what to do about all others.
func tidy(in Input, now time.Time) (current *workerpod.Observation, plan Plan) {
	plan = Plan{Step: StepNone}
	keepFor := time.Duration(ptr.Deref(in.Config.Worker.KeepFailedSeconds, 0)) * time.Second
	for i, p := range in.Pods {
		switch {
		case p.Purpose == workerpod.PurposeProbe:
			if p.State == workerpod.Finished && !p.Terminating {
				plan.reap(p, endOf(p), probeKeptFor, now)
			} else if past, left := overdue(in, p, now); past && !p.Terminating {
				plan.Delete = append(plan.Delete, p.Name)
			} else {
				plan.wait(left)
			}
		case p.Attempt == in.Node.Record.Sequence+1 && !p.Recorded:
			current = &in.Pods[i]
		case p.Terminating:
		case p.Attempt == in.Node.Record.Sequence && p.Outcome == node.OutcomeFailed && keepFor > 0 && in.Node.Record.LastOutcome != node.OutcomePassed:
			if !p.Recorded {
				plan.Keep = append(plan.Keep, p.Name)
			}
			plan.reap(p, endOf(p), keepFor, now)
		default:
			plan.Delete = append(plan.Delete, p.Name)
		}
	}
	return current, plan
}

func endOf(p workerpod.Observation) time.Time {
	if p.Ended.IsZero() {
		return p.Created
	}
	return p.Ended
}

// reap deletes a finished pod once it was kept long enough.
func (p *Plan) reap(pod workerpod.Observation, end time.Time, keep time.Duration, now time.Time) {
	if left := end.Add(keep).Sub(now); left > 0 {
		p.wait(left)
		return
	}
	p.Delete = append(p.Delete, pod.Name)
}
