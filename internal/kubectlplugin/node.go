package kubectlplugin

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// What is shown of a node that is not ours: its status, and its state.
const (
	unmanaged = "unmanaged" // never had a gating taint and never was verified
	excluded  = "excluded"  // the configuration or an annotation leaves it out
	deleting  = "deleting"  // has a deletion timestamp
	// opened: another writer removed its gating taint before it was verified.
	opened = "opened-unverified"
)

// attention lists the statuses of nodes that are not verified and must be, the most urgent first.
var attention = []string{string(decide.StatusFailed), string(decide.StatusHeld), string(decide.StatusVerifying),
	string(decide.StatusPending), opened}

// nodeState is a node and its worker pods as the API server has them, and as the controller evaluates them.
type nodeState struct {
	node *corev1.Node
	pods map[string]*corev1.Pod // those that the controller made, by UID
	in   decide.Input
	// karpenter is why Karpenter does not call the node initialised.
	karpenter string
	// rules are the NodeReadinessRules that select the node.
	rules []ruleView
}

func observe(cfg *config.Config, n *corev1.Node, pods []corev1.Pod) nodeState {
	in := decide.Input{Config: cfg, Profile: cfg.For(n.Labels), Selected: cfg.Selects(n.Labels),
		Node: marks.Observe(n, cfg.Vocabulary())}
	// The hash includes the controller's image, which is not known here. So a record counts as made under the present
	// checks.
	in.Checks = in.Node.Record.Checks
	s := nodeState{node: n, pods: map[string]*corev1.Pod{}, in: in}
	target := workerpod.Target{Name: n.Name, UID: string(n.UID)}
	for i := range pods {
		if p := &pods[i]; workerpod.Ours(p, p.Namespace, target) {
			s.pods[string(p.UID)], s.in.Pods = p, append(s.in.Pods, workerpod.Observe(p))
		}
	}
	return s
}

// summary is the state of a node. Its JSON form is that of status -o json.
type summary struct {
	Name string `json:"name"`
	// Status is one of decide.Statuses or of those above.
	Status string `json:"status"`
	// State is one of decide.States but the first, or one of those above.
	State string `json:"state"`
	// Why is the condition's message, or else the record of the last attempt, or that the controller makes a dry run.
	Why string `json:"why,omitempty"`
	// Next is the attempt that is to come, if its time is known.
	Next struct {
		Time time.Time `json:"time"`
	} `json:"next,omitzero"`
	Pool    string `json:"pool,omitempty"`
	Profile string `json:"profile,omitempty"`
	// Taints are the gating ones, as key=value:effect.
	Taints   []string `json:"taints,omitempty"`
	Labelled bool     `json:"labelled"`
	// Attempts that failed, of MaxRetries; Inconclusive ones do not count.
	Attempts     int32 `json:"attempts"`
	MaxRetries   int32 `json:"maxRetries"`
	Inconclusive int32 `json:"inconclusive"`
	// Last is the last attempt that has a result.
	Last struct {
		Number     int32           `json:"number"`
		Outcome    attempt.Outcome `json:"outcome"`
		Check      string          `json:"check,omitempty"`
		Reason     string          `json:"reason,omitempty"`
		Message    string          `json:"message,omitempty"`
		Time       *time.Time      `json:"time,omitempty"`
		DurationMs int64           `json:"durationMs,omitempty"`
	} `json:"last,omitzero"`
	VerifiedTime *time.Time `json:"verifiedTime,omitempty"`
	// Held is the guard that holds the node's remediation.
	Held struct {
		Guard   string `json:"guard"`
		Message string `json:"message"`
	} `json:"held,omitzero"`
	// Suspicion is the condition for which the node is verified again.
	Suspicion *suspicionView `json:"suspicion,omitempty"`
	// Cleared are conditions whose last transition a pass has cleared.
	Cleared []suspicionView `json:"cleared,omitempty"`
	// Request is the last request for a verification, by the annotation node-ready/verify-requested.
	Request *requestView `json:"request,omitempty"`
	// RemediationConditions are the node's conditions that ask a repairer to act on it.
	RemediationConditions []corev1.NodeCondition `json:"remediationConditions,omitempty"`
	// Deletion is what was decided to be deleted.
	Deletion *marks.Deletion `json:"deletion,omitempty"`
	// Karpenter is why Karpenter does not call the node initialised, while it waits.
	Karpenter string `json:"karpenter,omitempty"`
	// Rules are the NodeReadinessRules that select the node.
	Rules []ruleView `json:"rules,omitempty"`
	// RecordProblem is why the record cannot be read.
	RecordProblem string `json:"recordProblem,omitempty"`
	// Worker is the pod of the attempt under way.
	Worker struct {
		Namespace string          `json:"namespace"`
		Name      string          `json:"name"`
		Attempt   int32           `json:"attempt"`
		State     workerpod.State `json:"state"`
		Created   time.Time       `json:"created"`
	} `json:"worker,omitzero"`
	// Condition is node-ready/Verified as it is on the node.
	Condition *corev1.NodeCondition `json:"condition,omitempty"`
}

// dryRunWhy is why a node is pending in a dry run, in which it gets no condition and no record.
const dryRunWhy = "dry run: nothing on the node changes; the controller's log has the result"

// summary is where a node stands; without a leader no next attempt is to come.
func (v *invocation) summary(s nodeState) summary {
	n := s.summary(v.now)
	if v.noLeader {
		n.Next.Time = time.Time{}
	}
	if v.unchanging && n.Why == "" && n.Status == string(decide.StatusPending) {
		n.Why = dryRunWhy
	}
	return n
}

func (s nodeState) summary(now time.Time) summary {
	n, r := s.in.Node, s.in.Node.Record
	out := summary{
		Name: n.Name, Status: s.status(now), State: s.state(now), Why: decide.LastFailure(r), Pool: n.Owner.Pool,
		Profile:  s.in.Profile.Profile,
		Labelled: n.Labelled, Attempts: r.Attempts, MaxRetries: s.in.Config.Reconciliation.MaxRetries,
		Inconclusive: r.Inconclusive, VerifiedTime: s.verifiedTime(), Deletion: r.Deletion, RecordProblem: n.RecordProblem,
		Condition: n.Condition, Karpenter: s.karpenter, Rules: s.rules, RemediationConditions: n.RemediationConditions,
	}
	if n.Condition != nil {
		out.Why = n.Condition.Message
	}
	if r.NextAttemptTime != nil && r.NextAttemptTime.After(now) && slices.Contains(attention, out.Status) {
		out.Next.Time = *r.NextAttemptTime
	}
	for _, t := range s.node.Spec.Taints {
		if s.in.Config.Vocabulary().Gates(t) {
			out.Taints = append(out.Taints, t.ToString())
		}
	}
	if r.LastOutcome != "" {
		l := &out.Last
		l.Number, l.Outcome, l.Time, l.DurationMs = r.Sequence, r.LastOutcome, r.LastTime, r.DurationMs
		l.Check, l.Reason, l.Message = r.LastCheck, r.LastReason, r.LastMessage
	}
	if r.Held != "" {
		out.Held.Guard, out.Held.Message = r.Held, r.HeldMessage
	}
	out.Suspicion, out.Cleared = s.suspicion(), s.cleared()
	out.Request = s.request()
	if o := decide.CurrentPod(r, s.in.Pods); o != nil {
		pod := s.pods[o.UID]
		w := &out.Worker
		w.Namespace, w.Name, w.Created = pod.Namespace, o.Name, pod.CreationTimestamp.UTC()
		w.Attempt, w.State = o.Attempt.Number, o.State
	}
	return out
}

func (s nodeState) status(now time.Time) string {
	status := string(decide.StatusOf(s.in, now))
	switch {
	case s.in.Node.Deleting:
		return deleting
	case status != "":
		return status
	case !decide.Eligible(s.in):
		return excluded
	case decide.OpenedUnverified(s.in):
		return opened
	}
	return unmanaged
}

// state is the node's state, or why it is not ours.
func (s nodeState) state(now time.Time) string {
	if state := decide.StateOf(s.in, now); state != decide.StateNotOurs {
		return string(state)
	}
	return s.status(now)
}

// since is when the node's status began, as far as its marks have it; nil where they do not.
func (s nodeState) since() *time.Time {
	if c := s.in.Node.Condition; c != nil {
		return &c.LastTransitionTime.Time
	}
	return cmp.Or(s.in.Node.Record.LastTime, s.verifiedTime())
}

// verifiedTime is when the node last passed; nil if the record does not say it.
func (s nodeState) verifiedTime() *time.Time {
	if s.in.Node.RecordProblem != "" {
		return nil // the controller takes the earliest time, so that it does not delete the node as a new one
	}
	return s.in.Node.Record.VerifiedTime
}

// lastWorker is the verify pod with the highest attempt; nil where there is none.
func (s nodeState) lastWorker() (last *workerpod.Observation) {
	for i, o := range s.in.Pods {
		if o.Purpose == workerpod.PurposeVerify && (last == nil || o.Attempt.Number > last.Attempt.Number) {
			last = &s.in.Pods[i]
		}
	}
	return last
}

// lastReport is the report of the last worker that left one; nil where there is none.
func (s nodeState) lastReport() *result.Report {
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

// addKarpenter adds to nodes that wait why Karpenter does not call them initialised, as their owners have it. Where no
// owner is served or may be read, nothing is added.
func (v *invocation) addKarpenter(ctx context.Context, list []nodeState) {
	waits := func(s nodeState) bool { return slices.Contains(attention, s.status(v.now)) }
	if !slices.ContainsFunc(list, func(s nodeState) bool { return s.in.Node.Owner.Managed && waits(s) }) {
		return
	}
	reasons := map[string]string{}
	for _, kind := range owner.Kinds() {
		if kind.Name == owner.Node {
			continue
		}
		_ = each(ctx, v.cluster.dynamic.Resource(kind.Resource).List, "", func(o *unstructured.Unstructured) {
			if _, node := kind.Machine(o); node != "" {
				reasons[node] = cmp.Or(uninitialised(o), reasons[node])
			}
		})
	}
	for i := range list {
		if waits(list[i]) {
			list[i].karpenter = reasons[list[i].node.Name]
		}
	}
}

// uninitialised is the reason and message of the owner's condition Initialized; empty where it is True or missing.
func uninitialised(o *unstructured.Unstructured) string {
	for _, c := range entries(o, "status", "conditions") {
		if c["type"] != "Initialized" || c["status"] == string(metav1.ConditionTrue) {
			continue
		}
		if c["message"] != "" && c["message"] != c["reason"] {
			return c["reason"] + ": " + c["message"]
		}
		return c["reason"]
	}
	return ""
}

// entries are the mappings in the list at a path of an object, with their keys that are strings.
func entries(o *unstructured.Unstructured, path ...string) (all []map[string]string) {
	list, _, _ := unstructured.NestedSlice(o.Object, path...)
	for _, x := range list {
		if from, ok := x.(map[string]any); ok {
			entry := map[string]string{}
			for key := range from {
				entry[key], _ = from[key].(string)
			}
			all = append(all, entry)
		}
	}
	return all
}
