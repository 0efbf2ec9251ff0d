package kubectlplugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// suspicionView is one transition of a condition that makes a node suspect.
type suspicionView struct {
	Condition corev1.NodeConditionType `json:"condition"`
	Status    corev1.ConditionStatus   `json:"status"`
	// Transition is the condition's lastTransitionTime.
	Transition *time.Time `json:"transition,omitempty"`
	// Since is when the suspicion began; of one that was cleared, when the node passed.
	Since time.Time `json:"since"`
	// Again is when a transition that was cleared makes the node suspect again, if the condition keeps its status.
	Again *time.Time `json:"again,omitempty"`
}

// requestView is a request for a verification.
type requestView struct {
	// ID is the value of the annotation node-ready/verify-requested.
	ID string `json:"id"`
	// State is open (no verification for it was begun), verifying or answered.
	State string `json:"state"`
	// Since is when a verification for it was decided on.
	Since *time.Time `json:"since,omitempty"`
	// Result is the answer: passed, failed or inconclusive.
	Result string `json:"result,omitempty"`
}

// The values of requestView.State.
const (
	requestOpen      = "open"
	requestVerifying = "verifying"
	requestAnswered  = "answered"
)

// suspicion is the suspicion by a condition under which the node is verified again; nil where there is none.
func (s nodeState) suspicion() *suspicionView {
	x := s.in.Node.Record.Suspicion
	if x == nil || x.Type == "" {
		return nil
	}
	return &suspicionView{Condition: x.Type, Status: x.Status, Transition: x.Transition, Since: x.Time}
}

// cleared are the suspicions that a pass cleared, as long as the node's condition still shows the transition.
func (s nodeState) cleared() (all []suspicionView) {
	cooldown := time.Duration(*s.in.Config.NodeManagement.Reverify.CooldownSeconds) * time.Second
	for _, x := range s.in.Node.Record.Cleared {
		if !slices.ContainsFunc(s.in.Node.Conditions, x.Same) {
			continue // the condition has changed since: another transition is another accusation
		}
		again := x.Time.Add(cooldown)
		all = append(all, suspicionView{Condition: x.Type, Status: x.Status, Transition: x.Transition, Since: x.Time,
			Again: &again})
	}
	return all
}

// request is the node's last request; nil where there is none.
func (s nodeState) request() *requestView {
	n, r := s.in.Node, s.in.Node.Record
	if n.Requested == "" {
		return nil
	}
	view := &requestView{ID: n.Requested, State: requestOpen}
	switch {
	case n.Requested == r.Request:
		view.State, view.Since = requestAnswered, r.RequestTime
		if s.node.Annotations[marks.AnnotationVerifyCompleted] == n.Requested {
			view.Result = s.node.Annotations[marks.AnnotationVerifyResult]
		}
	case r.Suspicion != nil && r.Suspicion.Request == n.Requested:
		view.State, view.Since = requestVerifying, cmp.Or(r.RequestTime, &r.Suspicion.Time)
	}
	return view
}

// suspect is why a node that was verified is verified again, in a few words; empty where nothing asks for it.
func (n summary) suspect() string {
	var parts []string
	if s := n.Suspicion; s != nil {
		parts = append(parts, fmt.Sprintf("suspect: %s=%s", s.Condition, s.Status))
	}
	if r := n.Request; r != nil && r.State != requestAnswered {
		parts = append(parts, "request "+r.ID)
	}
	return strings.Join(parts, "; ")
}

// suspects counts the nodes that are suspect, by condition, and those with an open request.
func suspects(nodes []summary) string {
	conditions, requested := map[corev1.NodeConditionType]int{}, 0
	for _, n := range nodes {
		if n.Suspicion != nil {
			conditions[n.Suspicion.Condition]++
		}
		if n.Request != nil && n.Request.State != requestAnswered {
			requested++
		}
	}
	var parts []string
	for _, c := range slices.Sorted(maps.Keys(conditions)) {
		parts = append(parts, fmt.Sprintf("%d by %s", conditions[c], c))
	}
	if requested > 0 {
		parts = append(parts, fmt.Sprintf("%d by request", requested))
	}
	return strings.Join(parts, ", ")
}

// suspicionLines are what explain shows of suspicions and requests, as names and values.
func (v *invocation) suspicionLines(n summary) (lines [][2]string) {
	if s := n.Suspicion; s != nil {
		lines = append(lines, [2]string{"Suspect", fmt.Sprintf("condition %s=%s since %s; verified again since %s",
			s.Condition, s.Status, cmp.Or(v.timestamp(s.Transition), "an unknown time"), v.timestamp(&s.Since))})
	}
	for _, c := range n.Cleared {
		again := "from now on"
		if c.Again.After(v.now) {
			again = until(*c.Again, v.now)
		}
		lines = append(lines, [2]string{"Cleared", fmt.Sprintf("condition %s=%s of %s, by a pass %s; the same transition "+
			"makes the node suspect again %s", c.Condition, c.Status, v.timestamp(c.Transition), v.timestamp(&c.Since), again)})
	}
	if r := n.Request; r != nil {
		text := r.ID + ": no verification for it has started yet; at most one starts in a minute"
		switch r.State {
		case requestVerifying:
			text = fmt.Sprintf("%s: a verification for it started %s", r.ID, v.timestamp(r.Since))
		case requestAnswered:
			text = r.ID + ": " + cmp.Or(r.Result, requestAnswered)
		}
		lines = append(lines, [2]string{"Request", text})
	}
	return lines
}
