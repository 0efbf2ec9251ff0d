// Package decide holds the rules: what is done about a node, as pure functions of what was observed and
// of the time. It knows no client, logger or clock.
package decide

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// quietFor is how long an attempt may take before the condition says Verifying. A worker that is
// done by then costs the API server one status write and not two.
const quietFor = 5 * time.Second

// deadlineGrace is how long past timeoutSeconds a worker may take to report its own deadline,
// which is the better account, before the controller calls it a timeout.
const deadlineGrace = 5 * time.Second

// unschedulableFor is how long kube-scheduler may call a pod unschedulable before the attempt ends:
// at first it often does not know the node yet.
const unschedulableFor = 10 * time.Second

// Input is what was observed of one node.
type Input struct {
	Node    node.Facts
	Config  *config.Config
	Profile config.Effective
	// Selected tells whether nodeManagement.nodeSelector matches the node.
	Selected bool
	// Pods are our pods on the node, verify pods and probes.
	Pods []workerpod.Observation
	// Lost is the attempt whose unfinished pod was seen to vanish; 0 for none.
	Lost int32
	// Waiting says which prerequisites do not hold, one line each.
	Waiting []string
}

// Step is what to do next about the node's verification. At most one step is taken per reconcile;
// its effect comes back as an event.
type Step string

// The steps.
const (
	// StepNone: there is nothing to do until Plan.Wait is over or something changes.
	StepNone Step = "none"
	// StepStart: create the pod Plan.Attempt.
	StepStart Step = "start"
	// StepRecord: write Plan.Change, then tell of Plan.Events.
	StepRecord Step = "record"
	// StepAttribute: a check failed and deletion is on, so Attribute decides whose failure it is.
	StepAttribute Step = "attribute"
	// StepRemediate: retries are exhausted and deletion is on, so Remediate decides.
	StepRemediate Step = "remediate"
)

// Plan is what Verify decided.
type Plan struct {
	Step Step
	// Attempt and Via describe the pod of StepStart.
	Attempt int32
	Via     config.Scheduling
	// Pod is the finished pod of StepRecord and StepAttribute; nil when it is gone.
	Pod *workerpod.Observation
	// Change is the write of StepRecord.
	Change node.Change
	// Events tell of the step once it is taken.
	Events []Event
	// Condition is what the node should say; nil leaves it as it is.
	Condition *node.Condition
	// Delete and Keep are the names of pods to delete, and of failed ones to mark as kept.
	Delete, Keep []string
	// Wait is when to look again even if nothing changes; 0 for the safety-net resync.
	Wait time.Duration
}

// Event is a Kubernetes event on the Node.
type Event struct {
	Type, Reason, Message string
	// Sequence makes the event's name: the same event of the same attempt is told once.
	Sequence int32
}

// Reasons of events.
const (
	EventStarted          = "VerificationStarted"
	EventPassed           = "VerificationPassed"
	EventFailed           = "VerificationFailed"
	EventInconclusive     = "VerificationInconclusive"
	EventExhausted        = "RetriesExhausted"
	EventNodeClaimDeleted = "NodeClaimDeleted"
	EventNodeDeleted      = "NodeDeleted"
	EventHeld             = "RemediationHeld"
	EventQuarantined      = "Quarantined"
)

// Verify decides about one node.
func Verify(in Input, now time.Time) Plan {
	current, plan := tidy(in, now)
	switch {
	case in.Node.Deleting:
		return plan // its pods die with it
	case !Subject(in), !Needed(in, now):
		if current != nil {
			plan.Delete = append(plan.Delete, current.Name)
		}
		plan.Condition = settled(in)
		plan.wait(untilAged(in, now))
		return plan
	}
	spent := run(in)
	switch {
	case current == nil && in.Lost == in.Node.Record.Sequence+1:
		lost := workerpod.Observation{Attempt: in.Lost, State: workerpod.Finished, Outcome: node.OutcomeInconclusive,
			Reason: workerpod.ReasonPodDeleted, Message: "the pod was deleted before it had a result"}
		plan.record(in, spent, &lost, now)
	case current == nil:
		plan.next(in, spent, now)
	case current.State != workerpod.Finished:
		plan.await(in, spent, current, now)
	default:
		plan.judge(in, spent, current, now)
	}
	return plan
}

// wait looks again after d, or sooner if something else asked for that.
func (p *Plan) wait(d time.Duration) {
	if d > 0 && (p.Wait == 0 || d < p.Wait) {
		p.Wait = d
	}
}

// spent is what the run under way has used.
type spent struct {
	attempts, inconclusive int32
	first                  bool // no attempt of this run is recorded yet
}

// run tells what the run under way has used. A run begins after a pass and after a reboot.
func run(in Input) spent {
	r := in.Node.Record
	if r.LastOutcome == "" || r.LastOutcome == node.OutcomePassed || rebooted(in) {
		return spent{first: true}
	}
	return spent{attempts: r.Attempts, inconclusive: r.Inconclusive}
}

func (s spent) exhausted(in Input) bool { return s.attempts >= in.Config.Reconciliation.MaxRetries }

// next decides what comes after the last attempt, with no pod under way.
func (p *Plan) next(in Input, s spent, now time.Time) {
	r := in.Node.Record
	p.Condition = between(in, s)
	remediable := s.exhausted(in) && r.LastOutcome == node.OutcomeFailed && in.Config.NodeManagement.DeleteFailedNodes
	// Deletion was switched on after the failure: it has to happen once more, beside a probe, before it may count.
	confirm := remediable && attributes(in.Config) && !r.Probed && r.Deleting == ""
	if due := r.Next(); !s.first && !confirm && (r.NextAttemptTime == nil || now.Before(due)) {
		if r.NextAttemptTime != nil {
			p.wait(due.Sub(now))
		}
		// Only a failure that is not yet due for another try may lead to deletion: an older one
		// (the controller was down, a guard held for long) has to be confirmed first.
		if remediable {
			p.Step = StepRemediate
		}
		return
	}
	if s.first && len(in.Waiting) > 0 {
		p.Condition = waiting(in, now)
		return
	}
	if s.first && in.Config.NodeManagement.Reverify.Taint && !in.Node.Gated && in.Node.Record.Verified() {
		p.Step, p.Change = StepRecord, node.Change{Record: r, Gate: node.GateClose}
		return
	}
	p.Step, p.Attempt, p.Via = StepStart, r.Sequence+1, in.Config.Worker.Scheduling
	if r.LastReason == workerpod.ReasonKubeletRejected {
		p.Via = config.SchedulingScheduler
	}
	p.Events = []Event{{Type: corev1.EventTypeNormal, Reason: EventStarted, Sequence: p.Attempt,
		Message: fmt.Sprintf("Worker %s verifies the node, attempt %d", workerpod.VerifyName(target(in), p.Attempt), p.Attempt)}}
}

func target(in Input) workerpod.Target {
	return workerpod.Target{Name: in.Node.Name, UID: in.Node.UID, BootID: in.Node.BootID}
}

// overdue tells whether a pod that has no result has had its time; left is what remains of it.
func overdue(in Input, p workerpod.Observation, now time.Time) (past bool, left time.Duration) {
	end := p.Created.Add(time.Duration(in.Config.Worker.StartTimeoutSeconds) * time.Second)
	if p.State == workerpod.Running {
		end = p.Started.Add(time.Duration(in.Profile.TimeoutSeconds)*time.Second + deadlineGrace)
	}
	left = end.Sub(now)
	return left <= 0, left
}

// await looks after a pod that has no result yet.
func (p *Plan) await(in Input, s spent, pod *workerpod.Observation, now time.Time) {
	past, left := overdue(in, *pod, now)
	ended := *pod
	ended.State, ended.Ended, ended.Outcome = workerpod.Finished, now, node.OutcomeInconclusive
	switch {
	case past && in.Node.Lost:
		ended.Reason, ended.Message = workerpod.ReasonNodeLost, "the kubelet stopped reporting while the worker ran"
	case past && pod.State == workerpod.Running:
		ended.Outcome, ended.Reason = node.OutcomeFailed, workerpod.ReasonTimeout
		ended.Message = fmt.Sprintf("the worker started and ran past worker.timeoutSeconds (%d s)", in.Profile.TimeoutSeconds)
	case past:
		ended.Reason = workerpod.ReasonStartTimeout
		ended.Message = fmt.Sprintf("the worker did not start within worker.startTimeoutSeconds (%d s)", in.Config.Worker.StartTimeoutSeconds)
	case !pod.UnschedulableSince.IsZero() && !now.Before(pod.UnschedulableSince.Add(unschedulableFor)):
		ended.Reason, ended.Message = workerpod.ReasonUnschedulable, "kube-scheduler: "+node.Truncate(pod.UnschedulableMessage)
	default:
		p.wait(left)
		if !pod.UnschedulableSince.IsZero() {
			p.wait(pod.UnschedulableSince.Add(unschedulableFor).Sub(now))
		}
		if loud := pod.Created.Add(quietFor); now.Before(loud) {
			p.wait(loud.Sub(now))
		} else {
			p.Condition = verifying(in, s, pod)
		}
		return
	}
	p.judge(in, s, &ended, now)
}

// judge turns a finished pod into a record.
func (p *Plan) judge(in Input, s spent, pod *workerpod.Observation, now time.Time) {
	p.Pod = pod
	if pod.Outcome == node.OutcomePassed && pod.BootID != "" && in.Node.BootID != "" && pod.BootID != in.Node.BootID {
		stale := *pod
		stale.Outcome, stale.Reason, stale.Message = node.OutcomeInconclusive, workerpod.ReasonNodeRebooted, "the node rebooted after the worker passed"
		pod = &stale
	}
	if pod.Outcome == node.OutcomePassed && in.Node.Managed && !in.Node.Registered && in.Node.Gated {
		// Karpenter merges startup taints back until it has registered the node
		// (sigs.k8s.io/karpenter pkg/controllers/nodeclaim/lifecycle/registration.go).
		p.Condition = &node.Condition{Status: corev1.ConditionUnknown, Reason: node.ReasonWaitingForPrerequisites, Since: endOf(*pod),
			Message: "All required checks passed; the taint stays until Karpenter sets " + node.LabelKarpenterRegistered}
		return
	}
	if pod.Outcome == node.OutcomeFailed && attributes(in.Config) {
		p.Step = StepAttribute
		return
	}
	p.record(in, s, pod, now)
}

// attributes tells whether a failure is held against a node only after a probe passed elsewhere.
func attributes(c *config.Config) bool {
	return c.NodeManagement.DeleteFailedNodes && ptr.Deref(c.NodeManagement.Remediation.ControlProbe, true)
}
