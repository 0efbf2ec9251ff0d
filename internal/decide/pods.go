package decide

import (
	"slices"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// deadlineGrace is how long past its timeout a worker may take to report its own deadline, which is the better account,
// before the controller calls it a timeout.
const deadlineGrace = 5 * time.Second

// unschedulableFor is how long kube-scheduler may call a pod unschedulable before the attempt ends: at first it often does
// not know the node yet.
const unschedulableFor = 10 * time.Second

// probeKeptFor is how long a probe stays once it has a result, so that nodes which fail together have one between them, or was
// given up, so that the next one is on another node.
const probeKeptFor = 30 * time.Second

// CurrentPod is the pod of the attempt that comes after the last recorded one; nil where there is none. A pod with a lower
// number has its result in the record.
func CurrentPod(r marks.Record, pods []workerpod.Observation) *workerpod.Observation {
	for i, p := range pods {
		if p.Purpose == workerpod.PurposeVerify && p.Attempt.Number == r.Sequence+1 && !p.Recorded {
			return &pods[i]
		}
	}
	return nil
}

// cleanUpPods finds the current pod, and what to do about all others.
func cleanUpPods(in Input, now time.Time) (current *workerpod.Observation, plan Plan) {
	r := in.Node.Record
	current = CurrentPod(r, in.Pods)
	keepFor := time.Duration(*in.Config.Worker.KeepFailedSeconds) * time.Second
	for _, p := range in.Pods {
		switch {
		case current != nil && p.Name == current.Name && !in.DryRunDone:
		case p.Terminating:
			plan.forceDelete(p, now)
		case p.Purpose == workerpod.PurposeProbe:
			switch {
			case p.Attempt.Result != nil:
				plan.deleteAfter(p, p.Seen.Result.Add(probeKeptFor), now)
			case p.Unschedulable != "":
				plan.deleteAfter(p, abandonedAt(in, p).Add(probeKeptFor), now)
			default:
				plan.deleteAfter(p, podDeadline(in, p), now)
			}
		case in.DryRunDone && !p.Occupies:
			plan.deleteAfter(p, p.Seen.Result.Add(keepFor), now)
		case p.Attempt.Number == r.Sequence && !p.Occupies && r.LastOutcome != attempt.Passed && r.LastTime != nil && keepFor > 0:
			if !p.Recorded {
				plan.Keep = append(plan.Keep, p)
			}
			plan.deleteAfter(p, r.LastTime.Add(keepFor), now)
		default:
			plan.Delete = append(plan.Delete, p)
		}
	}
	return current, plan
}

// deleteAfter deletes a pod once its time is over.
func (p *Plan) deleteAfter(pod workerpod.Observation, end, now time.Time) {
	if left := end.Sub(now); left > 0 {
		p.requeueAfter(left)
		return
	}
	p.Delete = append(p.Delete, pod)
}

// hasUnrecorded reports whether one of the pods is of an attempt that, as far as the record says, has no recorded result, or has none to be
// recorded yet: where somebody removed the record, attempts are counted from the first again. Of a record that is not proved current
// it says so for every pod that is not known to be recorded.
func hasUnrecorded(r marks.Record, pods []workerpod.Observation, current bool) bool {
	return slices.ContainsFunc(pods, func(p workerpod.Observation) bool {
		return p.Purpose == workerpod.PurposeVerify && (p.Attempt.Number > r.Sequence || !p.Recorded && (p.Attempt.Result == nil || !current))
	})
}

// podDeadline is when a pod without a result has had its time, on the clock that saw it. What it was given counts; the
// present configuration is for pods that do not say.
func podDeadline(in Input, p workerpod.Observation) time.Time {
	if p.State == workerpod.Running {
		run := p.Timeout
		if run == 0 {
			run = time.Duration(in.Profile.TimeoutSeconds) * time.Second
		}
		return p.Seen.Running.Add(run + deadlineGrace)
	}
	start := p.StartTimeout
	if start == 0 {
		start = time.Duration(in.Config.Worker.StartTimeoutSeconds) * time.Second
	}
	return p.Seen.First.Add(start)
}

// abandonedAt is when nothing is expected any more of a pod without a result: at its deadline, or once kube-scheduler has had no
// room for it for long enough.
func abandonedAt(in Input, p workerpod.Observation) time.Time {
	end := podDeadline(in, p)
	if at := p.Seen.Unschedulable.Add(unschedulableFor); p.Unschedulable != "" && at.Before(end) {
		return at
	}
	return end
}
