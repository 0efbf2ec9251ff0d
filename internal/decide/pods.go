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

// cleanUpPods returns the current pod, and plans what happens to all others.
func (d *decision) cleanUpPods() (current *workerpod.Observation) {
	r := d.in.Node.Record
	current = CurrentPod(r, d.in.Pods)
	keepFor := time.Duration(*d.in.Config.Worker.KeepFailedSeconds) * time.Second
	for _, p := range d.in.Pods {
		switch {
		case current != nil && p.Name == current.Name && !d.in.DryRunDone:
		case p.Terminating:
			d.forceDelete(p)
		case p.Purpose == workerpod.PurposeProbe:
			switch {
			case p.Attempt.Result != nil:
				d.deleteAfter(p, p.Seen.Result.Add(probeKeptFor))
			case p.Unschedulable != "":
				d.deleteAfter(p, abandonedAt(d.in, p).Add(probeKeptFor))
			default:
				d.deleteAfter(p, podDeadline(d.in, p))
			}
		case d.in.DryRunDone && !p.Occupies:
			d.deleteAfter(p, p.Seen.Result.Add(keepFor))
		case p.Attempt.Number == r.Sequence && !p.Occupies && r.LastOutcome != attempt.Passed &&
			r.LastTime != nil && keepFor > 0:
			if !p.Recorded {
				d.Keep = append(d.Keep, p)
			}
			d.deleteAfter(p, r.LastTime.Add(keepFor))
		default:
			d.Delete = append(d.Delete, p)
		}
	}
	return current
}

// deleteAfter deletes a pod once its time is over.
func (d *decision) deleteAfter(pod workerpod.Observation, end time.Time) {
	if left := end.Sub(d.now); left > 0 {
		d.requeueAfter(left)
		return
	}
	d.Delete = append(d.Delete, pod)
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
