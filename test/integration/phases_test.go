package integration

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// A node that waits for four seconds in every phase that can be prolonged: each is accounted for, and their sum is the whole time. One
// that was under way when its leader was killed is in no account.
func TestWhereTheTimeWent(t *testing.T) {
	// A phase is as long as the controller sees it, which on a busy machine sees its begin a second late.
	const wait, least = 4 * time.Second, 2500 * time.Millisecond
	s := begin(t, set("reconciliation", map[string]any{"maxConcurrentVerifications": 1}), execCheck("sleep", fmt.Sprint(wait.Seconds())),
		set("nodeManagement", map[string]any{"prerequisites": map[string]any{"nodeReady": true}}))
	first := s.controller()
	pool := s.name
	before := s.node("before", pooled("before"), func(n *nodeagent.NodeSpec) { n.Labels[owner.LabelRegistered] = "true" })
	s.becomes(before.Name, "verified, so that it is known who leads", isVerified)
	began := time.Now()
	n := s.node("a", pooled(pool), func(n *nodeagent.NodeSpec) { n.NotReady = true })
	s.eventually("it waits for a prerequisite", func() string { return s.waitFor("nodeReady Ready", pool, 1) })
	time.Sleep(wait)
	other := s.node("b")
	s.eventually("another node's worker runs", func() string { return s.runs(other.Name) })
	s.must(nil, n.MarkReady(s.ctx))
	s.eventually("it waits for a slot", func() string { return s.waitFor("slot", pool, 1) })
	s.eventually("it waits for its registration", func() string { return s.waitFor("registration", pool, 1) })
	time.Sleep(wait)
	s.patchNode(n.Name, `{"metadata":{"labels":{"karpenter.sh/registered":"true"}}}`)
	s.becomes(n.Name, "verified", isVerified)
	s.becomes(other.Name, "verified", isVerified)
	whole := time.Since(began)

	var sum time.Duration
	for _, phase := range decide.Phases() {
		count, took := s.spent(string(phase), pool)
		sum += took
		long := phase != decide.PhaseInit && phase != decide.PhaseStart && phase != decide.PhaseSlot && phase != decide.PhaseRelease
		if count != 1 || long && took < least {
			t.Errorf("%s: %d nodes, %s", phase, count, took)
		}
		if count, _ := s.spent(string(phase), ""); count != 1 {
			t.Errorf("%s: %d nodes of no NodePool", phase, count)
		}
	}
	if _, slot := s.spent("slot", pool); slot < least/3 {
		t.Errorf("%s for a slot", slot)
	}
	if sum < 3*least || sum > whole {
		t.Errorf("%s in all phases, of %s", sum, whole)
	}
	for _, what := range []string{"nodeReady Ready", "slot", "registration"} {
		if fault := s.waitFor(what, pool, 0); fault != "" {
			t.Error("after that:", fault)
		}
	}

	c := s.node("c")
	s.eventually("its worker runs", func() string { return s.runs(c.Name) })
	first.Signal(syscall.SIGKILL)
	s.controller()
	s.becomes(c.Name, "verified by the successor", func(f marks.Facts) bool { return isVerified(f) && f.Record.Sequence == 1 })
	if count, took := s.spent("checks", ""); count != 0 {
		t.Errorf("the successor accounts for %d nodes, %s", count, took)
	}
}

// runs says what is wrong unless a worker runs on the node.
func (s *suite) runs(name string) string {
	s.Helper()
	for _, p := range s.workers(name) {
		if p.Status.Phase == corev1.PodRunning {
			return ""
		}
	}
	return "none does"
}

// metric is a series of the controller's metrics by its labels; nil where there is none.
func (s *suite) metric(name string, labels map[string]string) *dto.Metric {
	s.Helper()
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", s.config["metrics"].(map[string]any)["port"]))
	s.must(nil, err)
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	s.must(nil, err)
	for _, m := range families[name].GetMetric() {
		same := len(m.GetLabel()) == len(labels)
		for _, l := range m.GetLabel() {
			same = same && labels[l.GetName()] == l.GetValue()
		}
		if same {
			return m
		}
	}
	return nil
}

// waitFor says what is wrong unless so many nodes of a NodePool wait for it.
func (s *suite) waitFor(what, pool string, want float64) string {
	s.Helper()
	if got := s.metric("kube_node_ready_waiting_nodes", map[string]string{"for": what, "nodepool": pool}).GetGauge().GetValue(); got != want {
		return fmt.Sprintf("%v nodes of NodePool %q wait for %s", got, pool, what)
	}
	return ""
}

// spent is how many nodes of a NodePool are accounted for, and how long they were in a phase.
func (s *suite) spent(phase, pool string) (nodes uint64, in time.Duration) {
	s.Helper()
	h := s.metric("kube_node_ready_time_to_schedulable_seconds", map[string]string{"phase": phase, "nodepool": pool}).GetHistogram()
	return h.GetSampleCount(), time.Duration(h.GetSampleSum() * float64(time.Second))
}
