package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// deadlineGrace is how long the controller waits after a worker's timeout before it records a timeout. In that time the
// worker can report the timeout itself, with more detail.
const deadlineGrace = 5 * time.Second

// unschedulableFor is how long kube-scheduler may report a pod as unschedulable before the attempt ends. At first it
// often does not know the node.
const unschedulableFor = 10 * time.Second

// probeKeptFor is how long a probe is kept after its result, so that nodes which fail together share it. An abandoned
// probe is kept as long, so that the next one runs on another node.
const probeKeptFor = 30 * time.Second

// CurrentPod is the pod of the attempt after the last recorded one, or nil. The result of a pod with a lower number is
// in the record.
func CurrentPod(r marks.Record, pods []workerpod.Observation) *workerpod.Observation {
	for i, p := range pods {
		if p.Purpose == workerpod.PurposeVerify && p.Attempt.Number == r.Sequence+1 && !p.Recorded {
			return &pods[i]
		}
	}
	return nil
}

// podWork plans what happens to the node's pods, whatever its state. The pod of the attempt under way stays as long as
// the node must be verified.
func podWork(in Input, verify bool, now time.Time) (p Plan) {
	r, current := in.Node.Record, CurrentPod(in.Node.Record, in.Pods)
	keepFor := time.Duration(*in.Config.Worker.KeepFailedSeconds) * time.Second
	for _, pod := range in.Pods {
		switch {
		case current != nil && pod.Name == current.Name && !in.DryRunDone:
		case pod.Terminating:
			p.forceDelete(pod, now)
		case pod.Purpose == workerpod.PurposeProbe:
			p.deleteAfter(pod, probeEnd(in, pod), now)
		case in.DryRunDone && !pod.Occupies:
			p.deleteAfter(pod, pod.Seen.Result.Add(keepFor), now)
		case pod.Attempt.Number == r.Sequence && !pod.Occupies && r.LastOutcome != attempt.Passed &&
			r.LastTime != nil && keepFor > 0:
			if !pod.Recorded {
				p.Keep = append(p.Keep, pod)
			}
			p.deleteAfter(pod, r.LastTime.Add(keepFor), now)
		default:
			p.Delete = append(p.Delete, pod)
		}
	}
	switch {
	case verify || current == nil:
	case current.Terminating:
		p.forceDelete(*current, now)
	default:
		p.Delete = append(p.Delete, *current)
	}
	return p
}

// probeEnd is until when a control probe stays.
func probeEnd(in Input, pod workerpod.Observation) time.Time {
	switch {
	case pod.Attempt.Result != nil:
		return pod.Seen.Result.Add(probeKeptFor)
	case pod.Unschedulable != "":
		return abandonedAt(in, pod).Add(probeKeptFor)
	}
	return podDeadline(in, pod)
}

// deleteAfter deletes a pod once its time is over.
func (p *Plan) deleteAfter(pod workerpod.Observation, end, now time.Time) {
	if left := end.Sub(now); left > 0 {
		p.requeueAfter(left)
		return
	}
	p.Delete = append(p.Delete, pod)
}

// forceDelete deletes a terminating pod without grace, if it should have ended and none of its containers runs. A
// container runtime that hangs never confirms the end of a container that it did not start.
func (p *Plan) forceDelete(pod workerpod.Observation, now time.Time) {
	at := pod.EndsBy()
	if pod.HasRunningContainer || !pod.Occupies || at.IsZero() {
		return
	}
	if now.Before(at) {
		p.requeueAfter(at.Sub(now))
		return
	}
	p.ForceDelete = append(p.ForceDelete, pod)
}

// hasUnrecorded reports whether a pod's result may be missing from the record of a cached node. A lower number does not
// prove that the result is recorded: somebody may have removed the record since, and attempts count from 1 again. Only
// the mark on the pod itself proves it.
func hasUnrecorded(r marks.Record, pods []workerpod.Observation) bool {
	return slices.ContainsFunc(pods, func(p workerpod.Observation) bool {
		return p.Purpose == workerpod.PurposeVerify && (p.Attempt.Number > r.Sequence || !p.Recorded)
	})
}

// podDeadline is when a pod without a result has used up its time, on the observer's clock. It depends on the timeouts
// that the pod was created with or, if the pod does not show them, on those of the present configuration.
func podDeadline(in Input, p workerpod.Observation) time.Time {
	if p.State == workerpod.Running {
		return p.Seen.Running.Add(cmp.Or(p.Timeout, time.Duration(in.Profile.TimeoutSeconds)*time.Second) + deadlineGrace)
	}
	if p.InitContainer != "" {
		// A pod that was created without init containers may have an injected one, which takes part of its start.
		limit := cmp.Or(p.InitTimeout, time.Duration(in.Profile.InitSeconds())*time.Second, startTimeout(in, p))
		return p.Seen.Init.Add(limit)
	}
	end := p.Seen.First.Add(startTimeout(in, p))
	if !p.Seen.InitEnded.IsZero() {
		end = end.Add(p.Seen.InitEnded.Sub(p.Seen.Init))
	}
	return end
}

// startTimeout is how long the pod may take to start, without the time of its init containers.
func startTimeout(in Input, p workerpod.Observation) time.Duration {
	return cmp.Or(p.StartTimeout, time.Duration(in.Profile.StartTimeoutSeconds)*time.Second)
}

// abandonedAt is when a pod without a result counts as given up. That is at its deadline, or once it has been
// unschedulable for unschedulableFor.
func abandonedAt(in Input, p workerpod.Observation) time.Time {
	end := podDeadline(in, p)
	if at := p.Seen.Unschedulable.Add(unschedulableFor); p.Unschedulable != "" && at.Before(end) {
		return at
	}
	return end
}
