package kubectlplugin

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Statuses of nodes that have none of decide.Statuses.
const (
	unmanaged = "unmanaged" // never had a gating taint and never was verified
	excluded  = "excluded"  // the configuration or an annotation leaves it out
	deleting  = "deleting"  // on its way out
)

// attention lists the statuses of nodes for which there is something to do.
var attention = []string{string(decide.StatusPending), string(decide.StatusVerifying), string(decide.StatusFailed), string(decide.StatusHeld)}

// subject is a node and its worker pods as the API server has them, and as the controller's rules see them.
type subject struct {
	node *corev1.Node
	pods []corev1.Pod // those that the controller made
	in   decide.Input // its Pods are those of pods, in the same order
	// karpenter is what keeps Karpenter from calling the node initialised.
	karpenter string
	// rules are how it stands with NodeReadinessRules.
	rules []ruleView
}

func observe(cfg *config.Config, n *corev1.Node, pods []corev1.Pod) subject {
	s := subject{node: n, in: decide.Input{Config: cfg, Profile: cfg.For(n.Labels), Selected: cfg.Selects(n.Labels), Node: marks.Observe(n, cfg.Vocabulary())}}
	target := workerpod.Target{Name: n.Name, UID: string(n.UID)}
	for i := range pods {
		if workerpod.Ours(&pods[i], pods[i].Namespace, target) {
			s.pods, s.in.Pods = append(s.pods, pods[i]), append(s.in.Pods, workerpod.Observe(&pods[i]))
		}
	}
	return s
}

// summary is where a node stands. Its JSON form is that of status -o json.
type summary struct {
	Name string `json:"name"`
	// Status is one of decide.Statuses or of those above.
	Status string `json:"status"`
	// Why is the condition's message, else what the record says of the last attempt.
	Why string `json:"why,omitempty"`
	// Next is the attempt that is to come, if its time is known.
	Next    *next  `json:"next,omitempty"`
	Pool    string `json:"pool,omitempty"`
	Profile string `json:"profile,omitempty"`
	// Taints are the gating ones, as key=value:effect.
	Taints   []string `json:"taints,omitempty"`
	Labelled bool     `json:"labelled"`
	// Attempts that failed, of MaxRetries; Inconclusive ones spend none.
	Attempts     int32      `json:"attempts"`
	MaxRetries   int32      `json:"maxRetries"`
	Inconclusive int32      `json:"inconclusive"`
	Last         *recorded  `json:"last,omitempty"`
	VerifiedTime *time.Time `json:"verifiedTime,omitempty"`
	Held         *hold      `json:"held,omitempty"`
	// Deletion is what was decided to be deleted.
	Deletion *marks.Deletion `json:"deletion,omitempty"`
	// Karpenter is why Karpenter does not call the node initialised, while it waits.
	Karpenter string `json:"karpenter,omitempty"`
	// Rules are how the node stands with the NodeReadinessRules that select it.
	Rules []ruleView `json:"rules,omitempty"`
	// RecordProblem says why the record cannot be read.
	RecordProblem string      `json:"recordProblem,omitempty"`
	Worker        *workerView `json:"worker,omitempty"`
	// Condition is node-ready/Verified as it is on the node.
	Condition *corev1.NodeCondition `json:"condition,omitempty"`
}

type next struct {
	Time time.Time `json:"time"`
}

// recorded is the last attempt that has a result.
type recorded struct {
	Number     int32           `json:"number"`
	Outcome    attempt.Outcome `json:"outcome"`
	Check      string          `json:"check,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Message    string          `json:"message,omitempty"`
	Time       *time.Time      `json:"time,omitempty"`
	DurationMs int64           `json:"durationMs,omitempty"`
}

// hold is the remediation guard that holds the node's deletion.
type hold struct {
	Guard   string `json:"guard"`
	Message string `json:"message"`
}

// workerView is the pod of the attempt under way.
type workerView struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Attempt   int32           `json:"attempt"`
	State     workerpod.State `json:"state"`
	Created   time.Time       `json:"created"`
}

func (s subject) summary(now time.Time) summary {
	f, r := s.in.Node, s.in.Node.Record
	out := summary{
		Name: f.Name, Status: s.status(now), Why: decide.LastFailure(r), Pool: f.Owner.Pool, Profile: s.in.Profile.Profile, Labelled: f.Labelled,
		Attempts: r.Attempts, MaxRetries: s.in.Config.Reconciliation.MaxRetries, Inconclusive: r.Inconclusive,
		VerifiedTime: r.VerifiedTime, Deletion: r.Deletion, RecordProblem: f.RecordProblem, Condition: f.Condition,
		Karpenter: s.karpenter, Rules: s.rules,
	}
	if f.Condition != nil {
		out.Why = f.Condition.Message
	}
	if r.NextAttemptTime != nil && r.NextAttemptTime.After(now) && slices.Contains(attention, out.Status) {
		out.Next = &next{Time: *r.NextAttemptTime}
	}
	for _, t := range s.node.Spec.Taints {
		if s.in.Config.Vocabulary().Gates(t) {
			out.Taints = append(out.Taints, t.ToString())
		}
	}
	if r.LastOutcome != "" {
		out.Last = &recorded{Number: r.Sequence, Outcome: r.LastOutcome, Check: r.LastCheck, Reason: r.LastReason,
			Message: r.LastMessage, Time: r.LastTime, DurationMs: r.DurationMs}
	}
	if r.Held != "" {
		out.Held = &hold{Guard: r.Held, Message: r.HeldMessage}
	}
	if o := decide.CurrentPod(r, s.in.Pods); o != nil {
		pod := s.pods[slices.IndexFunc(s.pods, func(p corev1.Pod) bool { return string(p.UID) == o.UID })]
		out.Worker = &workerView{Namespace: pod.Namespace, Name: o.Name, Attempt: o.Attempt.Number, State: o.State, Created: pod.CreationTimestamp.UTC()}
	}
	return out
}

func (s subject) status(now time.Time) string {
	status := string(decide.StatusOf(s.in, now))
	switch {
	case s.in.Node.Deleting:
		return deleting
	case status != "":
		return status
	case !decide.Eligible(s.in):
		return excluded
	}
	return unmanaged
}

// since is when the node came to where it stands, as far as its marks say; nil where they do not.
func (s subject) since() *time.Time {
	if c := s.in.Node.Condition; c != nil {
		return &c.LastTransitionTime.Time
	}
	return cmp.Or(s.in.Node.Record.LastTime, s.in.Node.Record.VerifiedTime)
}

// lastWorker is the index of the verify pod with the highest attempt; -1 where there is none.
func (s subject) lastWorker() int {
	last := -1
	for i, o := range s.in.Pods {
		if o.Purpose == workerpod.PurposeVerify && (last < 0 || o.Attempt.Number > s.in.Pods[last].Attempt.Number) {
			last = i
		}
	}
	return last
}

// report is that of the last worker which left one; nil where none is there.
func (s subject) report() *result.Report {
	var last attempt.Attempt
	for _, o := range s.in.Pods {
		if a := o.Attempt; a.Result != nil && a.Result.Report != nil && a.Number > last.Number {
			last = a
		}
	}
	if last.Result == nil {
		return nil
	}
	return last.Result.Report
}
