// Package nodestatus explains where the verification of a node stands, to a person: what it
// waits for, what failed, and what happens next and when. It reads what the API server holds
// and asks the controller's own rules, so it says what the controller would do.
package nodestatus

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Statuses besides those of decide.Status.
const (
	// Unmanaged is a node that never had the taint and never was verified.
	Unmanaged = "unmanaged"
	// Excluded is a node that the configuration or an annotation leaves out.
	Excluded = "excluded"
	// Deleting is a node on its way out.
	Deleting = "deleting"
)

// Node is where one node stands. Its JSON form is that of kubectl node-ready status -o json.
type Node struct {
	Name string `json:"name"`
	// Status is pending, verifying, verified, failed, held, unmanaged, excluded or deleting.
	Status string `json:"status"`
	// Why says in one line what it waits for or what failed; empty where all is well.
	Why string `json:"why,omitempty"`
	// Next says what happens next, and when if that is known.
	Next Next `json:"next"`

	// Pool is its Karpenter NodePool, Profile the profile that selects it.
	Pool    string `json:"pool,omitempty"`
	Profile string `json:"profile,omitempty"`
	// Taints are the gating taints that it carries, as key=value:effect.
	Taints []string `json:"taints,omitempty"`
	// Labelled tells whether it carries the verified label.
	Labelled bool `json:"labelled"`
	// Attempts that failed, of MaxRetries; Inconclusive ones spend none.
	Attempts     int32 `json:"attempts"`
	MaxRetries   int32 `json:"maxRetries"`
	Inconclusive int32 `json:"inconclusive"`
	// Last is the last attempt that has an outcome.
	Last *Attempt `json:"last,omitempty"`
	// VerifiedTime is when it last passed.
	VerifiedTime *metav1.Time `json:"verifiedTime,omitempty"`
	// Held is the remediation guard that holds its deletion.
	Held *Hold `json:"held,omitempty"`
	// Worker is the attempt under way.
	Worker *Worker `json:"worker,omitempty"`
	// Condition is node-ready/Verified as the controller last wrote it.
	Condition *corev1.NodeCondition `json:"condition,omitempty"`
}

// Next is what happens next.
type Next struct {
	Action string `json:"action"`
	// Time is when; absent when it is now, or not a matter of time.
	Time *metav1.Time `json:"time,omitempty"`
}

// Attempt is the outcome of one worker.
type Attempt struct {
	Number     int32        `json:"number"`
	Outcome    node.Outcome `json:"outcome"`
	Check      string       `json:"check,omitempty"`
	Reason     string       `json:"reason,omitempty"`
	Message    string       `json:"message,omitempty"`
	Time       *metav1.Time `json:"time,omitempty"`
	DurationMs int64        `json:"durationMs,omitempty"`
}

// Hold is a remediation guard that holds.
type Hold struct {
	Guard   string `json:"guard"`
	Message string `json:"message"`
}

// Worker is a worker pod.
type Worker struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Attempt   int32           `json:"attempt"`
	State     workerpod.State `json:"state"`
	Created   metav1.Time     `json:"created"`
	Started   *metav1.Time    `json:"started,omitempty"`
}

// Pod is an observed worker pod and its namespace.
type Pod struct {
	workerpod.Observation
	Namespace string
}

// Observe gathers what the rules need of a node. Prerequisites are taken from the condition
// that the controller wrote: it watches them, and this does not.
func Observe(cfg *config.Config, n *corev1.Node, pods []Pod) decide.Input {
	in := decide.Input{Config: cfg, Profile: cfg.For(n.Labels), Selected: cfg.Selects(n.Labels)}
	in.Node, _ = node.Observe(n, in.Profile.Taints, cfg.NodeManagement.VerifiedLabel) // an unreadable record counts as none
	for _, p := range pods {
		in.Pods = append(in.Pods, p.Observation)
	}
	if c := in.Node.Condition; c != nil && c.Reason == node.ReasonWaitingForPrerequisites && current(in) == nil {
		in.Waiting = []string{strings.TrimPrefix(c.Message, "Waiting for ")}
	}
	return in
}

// current is the pod of the attempt under way.
func current(in decide.Input) *workerpod.Observation {
	for i, p := range in.Pods {
		if p.Purpose == workerpod.PurposeVerify && p.Attempt == in.Node.Record.Sequence+1 && !p.Recorded {
			return &in.Pods[i]
		}
	}
	return nil
}

// Of tells where a node stands at the time now.
func Of(cfg *config.Config, n *corev1.Node, pods []Pod, now time.Time) Node {
	in := Observe(cfg, n, pods)
	r := in.Node.Record
	out := Node{
		Name: n.Name, Pool: in.Node.Pool, Profile: in.Profile.Profile, Labelled: in.Node.Labelled,
		Attempts: r.Attempts, MaxRetries: cfg.Reconciliation.MaxRetries, Inconclusive: r.Inconclusive,
		VerifiedTime: r.VerifiedTime, Condition: in.Node.Condition,
	}
	for _, t := range n.Spec.Taints {
		for _, g := range in.Profile.Taints {
			if g.Key == t.Key && g.Effect == t.Effect {
				out.Taints = append(out.Taints, t.ToString())
			}
		}
	}
	if r.LastOutcome != "" {
		out.Last = &Attempt{Number: r.Sequence, Outcome: r.LastOutcome, Check: r.LastCheck, Reason: r.LastReason,
			Message: r.LastMessage, Time: r.LastTime, DurationMs: r.DurationMs}
	}
	if r.Held != "" {
		out.Held = &Hold{Guard: r.Held, Message: r.HeldMessage}
	}
	if pod := current(in); pod != nil {
		out.Worker = worker(pods, pod)
	}
	out.Status = status(in, now)
	out.Why = why(in, out)
	out.Next = next(in, out, now)
	return out
}

func worker(pods []Pod, of *workerpod.Observation) *Worker {
	w := &Worker{Name: of.Name, Attempt: of.Attempt, State: of.State, Created: metav1.NewTime(of.Created)}
	if !of.Started.IsZero() {
		started := metav1.NewTime(of.Started)
		w.Started = &started
	}
	for _, p := range pods {
		if p.UID == of.UID {
			w.Namespace = p.Namespace
		}
	}
	return w
}

func status(in decide.Input, now time.Time) string {
	switch {
	case in.Node.Deleting:
		return Deleting
	case !decide.Subject(in):
		return Excluded
	}
	if s := decide.StatusOf(in, now); s != "" {
		return string(s)
	}
	return Unmanaged
}

// why says what a node waits for or what failed.
func why(in decide.Input, n Node) string {
	r, c := in.Node.Record, in.Node.Condition
	switch n.Status {
	case Excluded:
		return exclusion(in)
	case Unmanaged:
		return "never had a gating taint and never was verified"
	case string(decide.StatusVerified), Deleting:
		return ""
	case string(decide.StatusHeld):
		return fmt.Sprintf("%s; %s holds its deletion: %s", decide.Fault(r), r.Held, r.HeldMessage)
	}
	if n.Worker != nil {
		if c != nil && c.Reason == node.ReasonWaitingForPrerequisites { // it passed, and Karpenter has not registered the node
			return c.Message
		}
		text := fmt.Sprintf("worker is %s", n.Worker.State)
		if pod := current(in); pod.State == workerpod.Finished && pod.Outcome != "" {
			text = fmt.Sprintf("worker has %s, its result is being recorded", pod.Outcome)
		} else if pod.UnschedulableMessage != "" {
			text += "; kube-scheduler: " + pod.UnschedulableMessage
		}
		return text
	}
	if len(in.Waiting) > 0 {
		return "waits for " + strings.Join(in.Waiting, "; ")
	}
	if r.LastOutcome != "" && r.LastOutcome != node.OutcomePassed {
		return decide.Fault(r)
	}
	return ""
}

func exclusion(in decide.Input) string {
	switch {
	case in.Node.Skip:
		return "annotation " + node.AnnotationSkip + " opts it out"
	case in.Node.ControlPlane && !in.Config.NodeManagement.IncludeControlPlane:
		return "control-plane nodes are left out (nodeManagement.includeControlPlane)"
	}
	return "nodeManagement.nodeSelector does not select it"
}
