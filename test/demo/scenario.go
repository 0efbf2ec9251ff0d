package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// maxRetries of the demo's configuration.
const maxRetries = 4

// The marks that the demo's configuration leaves at their defaults.
var (
	gate       = marks.Taint{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	vocabulary = marks.Vocabulary{Gating: []marks.Taint{gate}, Verified: marks.Label{Key: "node-ready/verified", Value: "true"}}
)

// configuration of both controllers: the defaults, with patience cut to a demo's length.
func configuration() map[string]any {
	return map[string]any{
		"worker": map[string]any{
			"image":               install.WorkerImage(),
			"checkTimeoutSeconds": 2,
			"timeoutSeconds":      20,
		},
		"reconciliation": map[string]any{
			"maxRetries": maxRetries, "initialBackoffSeconds": 1, "maxBackoffSeconds": 3,
		},
		"leaderElection": map[string]any{"enabled": true},
	}
}

// scenario is a node of the demo and what should become of it.
type scenario struct {
	name, story   string
	short         string // the story in the picture
	dns           nodeagent.DNSMode
	recoversAfter int32 // attempts; 0: never
	passes        bool
}

var nodes = []scenario{
	{name: "node-1", story: "healthy", short: "healthy", passes: true},
	{name: "node-2", story: "healthy", short: "healthy", passes: true},
	{name: "node-3", story: "healthy", short: "healthy", passes: true},
	{name: "node-4", story: "DNS drops queries, recovers after the second attempt", short: "DNS recovers", dns: nodeagent.DNSDrops, recoversAfter: 2, passes: true},
	{name: "node-5", story: "DNS refuses queries and stays broken", short: "DNS stays broken", dns: nodeagent.DNSRefuses},
}

func (s scenario) spec() nodeagent.NodeSpec {
	return nodeagent.NodeSpec{Name: s.name, DNS: s.dns, ProviderID: "demo://" + s.name,
		Taints: []corev1.Taint{{Key: gate.Key, Value: gate.Value, Effect: gate.Effect}}}
}

// settled reports whether the node is done, and then what is wrong with how it ended.
func (s scenario) settled(f marks.Facts) (done bool, fault string) {
	exhausted := f.Condition != nil && f.Condition.Reason == marks.ReasonRetriesExhausted
	switch {
	case f.Labelled && !f.Gated:
		if !s.passes {
			return true, "is verified, although its DNS is broken"
		}
		if f.Record.LastOutcome != attempt.Passed || f.Record.VerifiedTime == nil {
			return true, "is verified without a record of it"
		}
		if s.recoversAfter > 0 && f.Record.Sequence != s.recoversAfter+1 {
			return true, fmt.Sprintf("was verified by attempt %d, not %d", f.Record.Sequence, s.recoversAfter+1)
		}
		return true, ""
	case exhausted:
		switch {
		case s.passes:
			return true, "ran out of retries: " + failing(f)
		case !f.Gated || f.Labelled:
			return true, "failed, but lost its taint or has the label"
		case f.Record.Attempts != maxRetries:
			return true, fmt.Sprintf("spent %d attempts, not %d", f.Record.Attempts, maxRetries)
		case !strings.Contains(f.Record.LastCheck, "dns"):
			return true, fmt.Sprintf("failed by check %q, not DNS", f.Record.LastCheck)
		}
		return true, ""
	}
	return false, "was " + state(f) + " when the time was over"
}

var errNotAsExpected = errors.New("not every node ended as it should")

// watch breaks and repairs, until every node has settled.
func watch(ctx context.Context, agent *nodeagent.Agent, b *board, replicas []*install.Controller, deadline time.Time) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	recovered := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-replicas[0].Done():
			return fmt.Errorf("controller-1 ended with exit code %d", replicas[0].ExitCode())
		case <-replicas[1].Done():
			return fmt.Errorf("controller-2 ended with exit code %d", replicas[1].ExitCode())
		case <-tick.C:
		}
		b.draw()
		open := 0
		for _, s := range nodes {
			f := b.row(s.name).facts
			if s.recoversAfter > 0 && f.Record.Attempts >= s.recoversAfter && !recovered[s.name] {
				recovered[s.name] = true
				if err := agent.Node(s.name).SetDNS(nodeagent.DNSWorks); err != nil {
					return err
				}
				b.say(s.name, "demo", "DNS works from now on")
			}
			if done, _ := s.settled(f); !done {
				open++
			}
		}
		if open == 0 || time.Now().After(deadline) {
			break
		}
	}
	for _, s := range nodes {
		if done, fault := s.settled(b.row(s.name).facts); !done || fault != "" {
			return errNotAsExpected
		}
	}
	return nil
}

// summarise says how each node ended, and whether that is right.
func summarise(b *board, took time.Duration, ok bool) {
	fmt.Println()
	for _, s := range nodes {
		r := b.row(s.name)
		mark, end := "ok  ", ""
		_, fault := s.settled(r.facts)
		switch {
		case fault != "":
			mark, end = "FAIL", fault
		case s.passes:
			end = fmt.Sprintf("verified by attempt %d after %.1f s, untainted and labelled", r.facts.Record.Sequence, r.time.Seconds())
		default:
			end = fmt.Sprintf("still tainted after %d attempts; failing check %s", r.facts.Record.Attempts, failing(r.facts))
		}
		fmt.Printf("  %s %s (%s): %s\n", mark, s.name, s.story, end)
	}
	summary := "every node ended as it should"
	if !ok {
		summary = errNotAsExpected.Error()
	}
	fmt.Printf("\n%s; %.0f s in all\n", summary, took.Seconds())
}

// awaitLeader returns the index of the controller whose metrics say that it leads.
func awaitLeader(ctx context.Context, replicas []*install.Controller) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errors.New("no controller leads after 20 s"))
	defer cancel()
	for {
		for i, r := range replicas {
			if leads(ctx, r) {
				return i, nil
			}
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func leads(ctx context.Context, r *install.Controller) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.MetricsURL, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if lines.Text() == "kube_node_ready_leader 1" {
			return true
		}
	}
	return false
}
