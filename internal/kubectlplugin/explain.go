package kubectlplugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/nodestatus"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

func explain(ctx context.Context, v *invocation) error {
	n, pods, err := v.cluster.node(ctx, v.args[0])
	if err != nil {
		return err
	}
	s := nodestatus.Of(v.cluster.config, n, pods, v.now)
	report := latestReport(pods)
	if v.output == "json" {
		return printJSON(&v.out, struct {
			nodestatus.Node
			Report *result.Report `json:"report,omitempty"`
		}{s, report})
	}
	v.facts(n, s).print(&v.out, false)
	v.checks(report)
	return v.tellEvents(ctx, n)
}

// facts is the upper part of what explain prints: a name and a value to a line.
func (v *invocation) facts(n *corev1.Node, s nodestatus.Node) *table {
	t := &table{header: []string{"", ""}}
	add := func(name, value string) {
		if value != "" {
			t.rows = append(t.rows, []string{name, value})
		}
	}
	add("Node", s.Name)
	add("Status", s.Status)
	add("Why", plain(s.Why))
	add("Next", plain(s.Next.Action)+suffix(v.at(s.Next.Time)))
	if s.Last != nil {
		add("Retries", fmt.Sprintf("%d of %d spent, %d attempts inconclusive", s.Attempts, s.MaxRetries, s.Inconclusive))
		text := fmt.Sprintf("attempt %d, %s", s.Last.Number, s.Last.Outcome)
		if s.Last.DurationMs > 0 {
			text += " after " + (time.Duration(s.Last.DurationMs) * time.Millisecond).String()
		}
		add("Last", text+suffix(v.at(s.Last.Time)))
	}
	if s.VerifiedTime != nil {
		add("Verified", strings.TrimSpace(v.at(s.VerifiedTime)))
	}
	if s.Worker != nil {
		add("Worker", fmt.Sprintf("%s/%s, attempt %d, %s, created %s ago", s.Worker.Namespace, s.Worker.Name, s.Worker.Attempt, s.Worker.State, ago(&s.Worker.Created, v.now)))
	}
	add("Pool", s.Pool)
	add("Profile", s.Profile)
	add("Gating taints", orNone(s.Taints))
	add("Other taints", strings.Join(taintsOf(n, s.Taints), ", "))
	label := v.cluster.config.NodeManagement.VerifiedLabel
	add("Verified label", map[bool]string{true: "", false: "no "}[s.Labelled]+label.Key+"="+label.Value)
	if c := s.Condition; c != nil {
		add("Condition", fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, plain(c.Message)))
	}
	if v.colour {
		t.paint = func(column int, text string) string {
			if column == 1 {
				return coloured(text)
			}
			return "\x1b[1m" + text + "\x1b[0m"
		}
	}
	return t
}

// checks prints what the last worker whose report is still there found, failures first.
func (v *invocation) checks(report *result.Report) {
	if report == nil {
		return
	}
	fmt.Fprintln(&v.out, "\nChecks of the last worker:")
	t := &table{header: []string{"  OUTCOME", "CHECK", "TYPE", "DURATION", "REASON", "MESSAGE"}}
	for _, c := range report.Checks {
		t.rows = append(t.rows, []string{"  " + plain(string(c.Outcome)), plain(c.Name), plain(c.Type),
			(time.Duration(c.DurationMs) * time.Millisecond).String(), orDash(c.Reason), plain(c.Message)})
	}
	t.print(&v.out, true)
}

func (v *invocation) tellEvents(ctx context.Context, n *corev1.Node) error {
	events, err := v.cluster.events(ctx, n)
	if err != nil || len(events) == 0 {
		return err
	}
	fmt.Fprintln(&v.out, "\nEvents:")
	t := &table{header: []string{"  AGE", "TYPE", "REASON", "MESSAGE"}}
	for _, e := range events {
		t.rows = append(t.rows, []string{"  " + ago(&e.LastTimestamp, v.now), e.Type, e.Reason, plain(e.Message)})
	}
	t.print(&v.out, true)
	return nil
}

// latestReport is that of the node's last worker which left one.
func latestReport(pods []nodestatus.Pod) *result.Report {
	var report *result.Report
	var last int32
	for _, p := range pods {
		if p.Report != nil && p.Attempt > last {
			report, last = p.Report, p.Attempt
		}
	}
	return report
}

// at is a time and how far it is from now.
func (v *invocation) at(t *metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	text := when(t, v.now)
	if past, ok := strings.CutPrefix(text, "since "); ok {
		text = past + " ago"
	}
	return fmt.Sprintf("%s (%s)", text, t.UTC().Format(time.RFC3339))
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
