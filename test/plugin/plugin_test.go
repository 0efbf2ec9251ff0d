package plugin

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// TestKubectlFindsIt runs the binary of make build through kubectl, which finds plugins by
// their names in PATH.
func TestKubectlFindsIt(t *testing.T) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	kubectl, err := cluster.Tool("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), kubectl, "node-ready", "version")
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(root, "bin"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "kubectl-node_ready ") {
		t.Errorf("kubectl node-ready version: %v: %s (is bin/kubectl-node_ready built? run make build)", err, out)
	}
}

const clusterConfiguration = `
worker: {image: {repository: ghcr.io/kube-node-ready/kube-node-ready, tag: local}, checkTimeoutSeconds: 2, timeoutSeconds: 20}
reconciliation: {maxRetries: 2, initialBackoffSeconds: 1, maxBackoffSeconds: 1, exhaustedRetrySeconds: -1}
leaderElection: {enabled: false}
`

// TestOnCluster: a real control plane, a controller and four nodes: one that passes, one whose
// DNS is broken until its retries are exhausted, one that opts out and one that was there before.
func TestOnCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	e := start(ctx, t)

	// Until there is a ConfigMap, the defaults are assumed, and that is said.
	if got := e.run(ctx, "status"); got.code != 0 || !strings.Contains(got.err, "its defaults are assumed") || !strings.Contains(got.out, "No nodes found.") {
		t.Errorf("without a ConfigMap: %+v", got)
	}
	e.createConfigMap(ctx, "kube-node-ready", "controller", clusterConfiguration)

	taint := []corev1.Taint{{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	e.add(ctx, nodeagent.NodeSpec{Name: "good", Taints: taint, Labels: map[string]string{"pool": "a"}})
	bad := e.add(ctx, nodeagent.NodeSpec{Name: "bad", Taints: taint, DNS: nodeagent.DNSRefuses})
	e.add(ctx, nodeagent.NodeSpec{Name: "skipped", Taints: taint, Annotations: map[string]string{"node-ready/skip": "true"}})
	e.add(ctx, nodeagent.NodeSpec{Name: "old"})
	says := func(n summary, reason string) bool { return n.Condition != nil && n.Condition.Reason == reason }
	e.await(ctx, "good", func(n summary) bool { return n.Status == "verified" && says(n, marks.ReasonChecksPassed) })
	e.await(ctx, "bad", func(n summary) bool { return n.Status == "failed" && says(n, marks.ReasonRetriesExhausted) })

	t.Run("status", func(t *testing.T) {
		got := e.run(ctx, "status")
		want := []string{
			`^NODE +STATUS +SINCE +RETRIES +NEXT +WHY$`,
			`^bad +failed +\d+s +2/2 +- +2 of 2 attempts failed, last: check dns: .+…$`,
			`^good +verified +\d+s +0/2 +- +All required checks passed in .+, attempt 1$`,
			`^old +unmanaged +- +- +-$`,
			`^skipped +excluded +- +- +-$`,
		}
		matchLines(t, got, want)
		if strings.Contains(got.out, "\x1b") {
			t.Error("there are colours, and the output is no terminal")
		}
		if got := e.onTerminal(ctx, "status"); !strings.Contains(got.out, "\x1b[32mverified\x1b[0m") {
			t.Errorf("on a terminal: no colours in %q", got.out)
		}
		matchLines(t, e.run(ctx, "status", "--unverified", "--no-headers"), want[1:2])
		matchLines(t, e.run(ctx, "status", "-l", "pool=a", "--no-headers"), want[2:3])
		if got := e.run(ctx, "status", "-o", "wide", "bad"); !strings.Contains(got.out, "PROFILE") || !strings.Contains(got.out, "no further attempt: kubectl node-ready reverify bad starts afresh") {
			t.Errorf("wide: %+v", got)
		}
		if got := e.run(ctx, "status", "good", "none"); got.code != 1 || !strings.Contains(got.out, "verified") || !strings.Contains(got.err, `nodes "none" not found`) {
			t.Errorf("a node that is not there: %+v", got)
		}
	})

	t.Run("explain", func(t *testing.T) {
		e.emitOther(ctx, "bad")
		got := e.run(ctx, "explain", "bad")
		for deadline := time.Now().Add(10 * time.Second); !regexp.MustCompile(`Warning +RetriesExhausted`).MatchString(got.out) && time.Now().Before(deadline); {
			time.Sleep(100 * time.Millisecond) // events are queued
			got = e.run(ctx, "explain", "bad")
		}
		for _, want := range []string{
			`(?m)^Status +failed$`, `(?m)^Since +\d+s ago \(2`, `(?m)^Why +2 of 2 attempts failed, last: check dns: `,
			`(?m)^Retries +2 of 2 spent, 0 attempts inconclusive$`, `(?m)^Last +attempt 2, failed after .+; \d+s ago \(.+; check dns: `,
			`(?m)^Gating taints +node-ready/unverified=true:NoSchedule$`, `(?m)^Verified label +no node-ready/verified=true$`,
			`(?m)^Condition +node-ready/Verified=False RetriesExhausted$`,
			`(?m)^  failed +dns +dns `, `(?m)^  passed +api +kubernetesAPI `,
			`(?ms)^  \d+s +Warning +VerificationFailed +check dns: .+, attempt 1\)$.+^  \d+s +Warning +RetriesExhausted +All 2 attempts failed`,
		} {
			if !regexp.MustCompile(want).MatchString(got.out) {
				t.Errorf("no %s in\n%s%s", want, got.out, got.err)
			}
		}
		if strings.Contains(got.out, "OfAnother") || strings.Contains(got.out, "Next ") {
			t.Errorf("another's event, or a time that is not known, in\n%s", got.out)
		}
		var parsed struct {
			summary
			Report *struct{ Outcome string }
		}
		if err := json.Unmarshal([]byte(e.run(ctx, "explain", "bad", "-o", "json").out), &parsed); err != nil || parsed.Report == nil || parsed.Report.Outcome != "failed" || parsed.Last.Check != "dns" {
			t.Errorf("json: %+v, %v", parsed, err)
		}
	})

	t.Run("logs", func(t *testing.T) {
		if got := e.run(ctx, "logs", "bad"); got.code != 0 || !strings.Contains(got.out, `"check":"dns"`) {
			t.Errorf("logs of the kept worker: %+v", got)
		}
		if got := e.run(ctx, "logs", "good"); got.code != 1 || !strings.Contains(got.err, "node good has no worker pod; its status is verified. Attempt 1 (passed) is gone") {
			t.Errorf("logs of a node without a worker: %+v", got)
		}
	})

	t.Run("reverify", func(t *testing.T) {
		if got := e.run(ctx, "reverify", "skipped"); got.code != 1 || !strings.Contains(got.err, "it is excluded from verification by") {
			t.Errorf("skipped: %+v", got)
		}
		if err := bad.SetDNS(nodeagent.DNSWorks); err != nil {
			t.Fatal(err)
		}
		got := e.run(ctx, "reverify", "good", "bad")
		matchLines(t, got, []string{`^node/good: attempt 2 is due now$`, `^node/bad: attempt 3 is due now$`})
		e.await(ctx, "good", func(n summary) bool { return n.Status == "verified" && n.Last != nil && n.Last.Number == 2 })
		e.await(ctx, "bad", func(n summary) bool {
			return n.Status == "verified" && n.Last != nil && n.Last.Number == 3 && len(n.Taints) == 0
		})
	})

	t.Run("two controllers", func(t *testing.T) {
		e.createConfigMap(ctx, "default", "other", clusterConfiguration)
		if got := e.run(ctx, "status"); got.code != 1 || !strings.Contains(got.err, "default/other, kube-node-ready/controller") {
			t.Errorf("%+v", got)
		}
		if got := e.run(ctx, "status", "-n", "kube-node-ready"); got.code != 0 {
			t.Errorf("with --namespace: %+v", got)
		}
	})
}
