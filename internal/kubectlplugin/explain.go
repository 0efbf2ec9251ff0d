package kubectlplugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

func explain(ctx context.Context, v *invocation) error {
	s, err := v.cluster.node(ctx, v.args[0])
	if err != nil {
		return err
	}
	if v.output == "name" {
		fmt.Fprintln(&v.out, "node/"+s.node.Name)
		return nil
	}
	one := []nodeState{s}
	v.addKarpenter(ctx, one)
	v.addRules(ctx, one)
	s = one[0]
	l := v.leader(ctx)
	v.noLeader = l.Dead
	if pods, err := v.cluster.controllerPods(ctx); err == nil { // who may not list them sees the node nevertheless
		v.unchanging = isDryRun(pods)
	}
	n, report := v.summary(s), s.lastReport()
	if v.structured() {
		return v.printObject(struct {
			summary
			Report *result.Report `json:"report,omitempty"`
		}{n, report})
	}
	if l.Dead {
		fmt.Fprintf(&v.out, "%s\n\n", singleLine(l.line(v.now)))
	}
	if v.unchanging {
		fmt.Fprintf(&v.out, "Dry run: %s\n\n", dryRunText)
	}
	rows := v.facts(s, n)
	if v.notServed != "" && len(n.Rules) > 0 {
		rows = append(rows, []string{"Rules", v.notServed})
	}
	v.print(rows, func(_, column int, text string) string {
		if column == 1 {
			return coloured(text)
		}
		return bold(text)
	})
	v.printChecks(report)
	return v.printEvents(ctx, s.node)
}

// facts is the upper part of what explain prints: a name and a value on each line.
func (v *invocation) facts(s nodeState, n summary) (rows [][]string) {
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	add("Node", n.Name)
	add("State", n.State)
	add("Since", v.timestamp(s.since()))
	add("Why", n.Why)
	if c := n.Condition; c != nil && c.Status != corev1.ConditionTrue && !c.LastHeartbeatTime.IsZero() {
		add("That since", v.timestamp(&c.LastHeartbeatTime.Time)) // the reason may be younger than the status
	}
	if began, ok := decide.RoundStart(s.in, v.now); ok && slices.Contains(attention, n.Status) {
		add("Unverified", v.timestamp(&began))
		runs := !decide.SharesFailure(s.in)
		if limit := s.in.Profile.VerificationDeadlineSeconds; limit > 0 && runs {
			deadline := began.Add(time.Duration(limit) * time.Second)
			add("Deadline", v.timestamp(&deadline))
		}
	}
	if r := s.in.Node.Record; r.Released != nil {
		add("Released", v.timestamp(r.Released)+" past the deadline, unverified (reconciliation.onDeadline)")
	}
	for _, r := range n.Rules {
		switch {
		case r.State == rule.Held:
			add("Held by rule", fmt.Sprintf("%s: %s (taint %s)", r.Name, r.Why, r.Taint))
		case r.LeftOpen:
			add("Left open", fmt.Sprintf("by rule %s: %s (taint %s)", r.Name, r.Why, r.Taint))
		}
	}
	add("Karpenter", n.Karpenter)
	add("Next", v.timestamp(&n.Next.Time))
	if l := n.Last; l.Outcome != "" {
		add("Retries", fmt.Sprintf("%d of %d spent, %d attempts inconclusive", n.Attempts, n.MaxRetries, n.Inconclusive))
		text := fmt.Sprintf("attempt %d, %s", l.Number, l.Outcome)
		if l.DurationMs > 0 {
			text += " after " + (time.Duration(l.DurationMs) * time.Millisecond).String()
		}
		add("Last", joined("; ", text, v.timestamp(l.Time), decide.LastFailure(s.in.Node.Record)))
	}
	add("Verified", v.timestamp(n.VerifiedTime))
	if r := s.in.Node.Record; decide.MarksTakenBack(r, v.now) {
		last := r.TakenBack.Last()
		add("Taken back", fmt.Sprintf("%d passes, the last of %s, by %s", len(r.TakenBack.Passes), v.timestamp(&last),
			strings.TrimSuffix(takenBy(r.TakenBack.By), ",")))
	}
	for _, line := range v.suspicionLines(n) {
		add(line[0], line[1])
	}
	if n.Held.Guard != "" {
		add("Action held", n.Held.Guard+": "+n.Held.Message)
	}
	for _, c := range n.RemediationConditions {
		add("Action", fmt.Sprintf("condition %s=%s, set %s", c.Type, c.Status, v.timestamp(&c.LastTransitionTime.Time)))
	}
	if d := n.Deletion; d != nil {
		add("Deletion", fmt.Sprintf("%s %s, decided %s", d.Kind, d.Name, v.timestamp(&d.Time)))
	}
	add("Record", n.RecordProblem)
	if w := n.Worker; w.Name != "" {
		add("Worker", fmt.Sprintf("%s/%s, attempt %d, %s, created %s",
			w.Namespace, w.Name, w.Attempt, w.State, v.timestamp(&w.Created)))
	}
	add("Pool", n.Pool)
	add("Profile", n.Profile)
	add("Gating taints", cmp.Or(strings.Join(n.Taints, ", "), "none"))
	var others []string
	for _, t := range s.node.Spec.Taints {
		if !s.in.Config.Vocabulary().Gates(t) {
			others = append(others, t.ToString())
		}
	}
	add("Other taints", strings.Join(others, ", "))
	if len(s.in.Node.OtherEffect) > 0 {
		add("Other effect", otherEffect(s))
	}
	label := s.in.Config.NodeManagement.VerifiedLabel
	add("Verified label", map[bool]string{true: "", false: "no "}[n.Labelled]+label.Key+"="+label.Value)
	if c := n.Condition; c != nil {
		add("Condition", fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason)) // its message is the Why
	}
	return rows
}

// printChecks prints the results in a worker's report, failures first.
func (v *invocation) printChecks(report *result.Report) {
	if report == nil {
		return
	}
	fmt.Fprintln(&v.out, "\nChecks of the last worker:")
	rows := [][]string{{"  OUTCOME", "CHECK", "TYPE", "DURATION", "REASON", "MESSAGE"}}
	for _, c := range report.Checks {
		rows = append(rows, []string{"  " + string(c.Outcome), c.Name, c.Type,
			(time.Duration(c.DurationMs) * time.Millisecond).String(), cmp.Or(c.Reason, "-"), c.Message})
	}
	v.print(rows, nil)
}

// printEvents prints the last events on the node.
func (v *invocation) printEvents(ctx context.Context, n *corev1.Node) error {
	events, err := v.cluster.events(ctx, n)
	if err != nil || len(events) == 0 {
		return err
	}
	fmt.Fprintln(&v.out, "\nEvents:")
	rows := [][]string{{"  AGE", "TYPE", "REASON", "MESSAGE"}}
	for _, e := range events {
		rows = append(rows, []string{"  " + age(&e.EventTime.Time, v.now), e.Type, e.Reason, e.Message})
	}
	v.print(rows, nil)
	return nil
}
