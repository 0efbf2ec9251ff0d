package nodestatus

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// overdueAfter is how long an attempt may be due before it is said that the controller should
// have started it: longer than its safety-net resync by default.
const overdueAfter = time.Minute

// next says what the controller will do about a node, and when.
func next(in decide.Input, n Node, now time.Time) Next {
	switch n.Status {
	case Deleting:
		return Next{Action: "the node is being deleted"}
	case Excluded, Unmanaged:
		return Next{Action: "nothing"}
	case string(decide.StatusVerified):
		return afterPass(in)
	}
	if pod := current(in); pod != nil {
		return underWay(in, pod)
	}
	if len(in.Waiting) > 0 {
		return Next{Action: fmt.Sprintf("attempt %d, as soon as the prerequisites hold", in.Node.Record.Sequence+1)}
	}
	plan := decide.Verify(in, now)
	r := in.Node.Record
	switch plan.Step {
	case decide.StepStart, decide.StepRecord:
		return due(in, now)
	case decide.StepRemediate:
		if r.Held == "" {
			return Next{Action: "the guards of nodeManagement.remediation decide about its deletion"}
		}
	}
	if r.NextAttemptTime == nil {
		return Next{Action: "no further attempt; kubectl node-ready reverify " + n.Name + " starts one"}
	}
	at := metav1.NewTime(r.Next())
	return Next{Action: fmt.Sprintf("attempt %d", r.Sequence+1), Time: &at}
}

// due is an attempt that nothing holds back.
func due(in decide.Input, now time.Time) Next {
	r := in.Node.Record
	action := fmt.Sprintf("attempt %d starts now", r.Sequence+1)
	since := r.Next()
	if since.IsZero() && in.Node.Condition != nil {
		since = in.Node.Condition.LastTransitionTime.Time
	}
	if since.IsZero() || now.Sub(since) < overdueAfter {
		return Next{Action: action}
	}
	at := metav1.NewTime(since)
	return Next{Action: fmt.Sprintf("attempt %d is overdue: is the controller running, or maxConcurrentVerifications reached?", r.Sequence+1), Time: &at}
}

// underWay is when a worker must have a result.
func underWay(in decide.Input, pod *workerpod.Observation) Next {
	switch pod.State {
	case workerpod.Finished:
		if pod.Outcome == node.OutcomePassed && in.Node.Managed && !in.Node.Registered {
			return Next{Action: "the taint is removed when Karpenter sets " + node.LabelKarpenterRegistered}
		}
		return Next{Action: "its result is recorded"}
	case workerpod.Running:
		at := metav1.NewTime(pod.Started.Add(time.Duration(in.Profile.TimeoutSeconds) * time.Second))
		return Next{Action: "the worker ends, at the latest", Time: &at}
	}
	at := metav1.NewTime(pod.Created.Add(time.Duration(in.Config.Worker.StartTimeoutSeconds) * time.Second))
	return Next{Action: "the worker starts, or is given up", Time: &at}
}

// afterPass is when a verified node is verified again.
func afterPass(in decide.Input) Next {
	r := in.Node.Record
	if every := in.Config.NodeManagement.Reverify.Interval.Duration; every > 0 && r.VerifiedTime != nil {
		at := metav1.NewTime(r.VerifiedTime.Add(every))
		return Next{Action: "it is verified again", Time: &at}
	}
	if on := in.Config.NodeManagement.Reverify.OnReboot; on == nil || *on {
		return Next{Action: "nothing, until it reboots"}
	}
	return Next{Action: "nothing"}
}
