package daemonset

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
)

// csi is a configuration with a CSI driver as the prerequisite.
const csi = "nodeManagement: {prerequisites: {csiNodes: [{driver: disk.example.com}]}}"

// withDrivers is an API server that holds the node and its CSINode, which lists these drivers.
type withDrivers struct {
	*oneNode
	drivers []string
	lists   []string // that were asked for
}

func (w *withDrivers) Send(ctx context.Context, r apiserver.Request) (apiserver.Response, error) {
	if !strings.HasPrefix(r.Path, "/apis/storage.k8s.io/") {
		return w.oneNode.Send(ctx, r)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists = append(w.lists, r.Path)
	if status := w.refuse(r); status != 0 {
		return apiserver.Response{Status: status, Body: []byte(`{}`)}, nil
	}
	drivers := []map[string]string{}
	for _, d := range w.drivers {
		drivers = append(drivers, map[string]string{"name": d})
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": "7"}, "items": []any{map[string]any{
		"metadata": map[string]any{"name": "n", "ownerReferences": []any{map[string]any{"kind": "Node", "name": "n", "uid": "uid-n"}}},
		"spec":     map[string]any{"drivers": drivers}}}})
	return apiserver.Response{Status: http.StatusOK, Body: body}, err
}

// gatedNode is an API server with a gated node.
func gatedNode(refuse func(apiserver.Request) int, drivers ...string) *withDrivers {
	n := &corev1.Node{}
	n.Name, n.UID, n.ResourceVersion = "n", "uid-n", "1"
	n.Status.NodeInfo.BootID, n.Status.NodeInfo.OperatingSystem = "b", "linux"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Spec.Taints = []corev1.Taint{{Key: config.DefaultTaintKey, Effect: corev1.TaintEffectNoSchedule}}
	return &withDrivers{oneNode: &oneNode{node: n, refuse: refuse}, drivers: drivers}
}

// process makes a process whose checks have the outcome, and its log. Without an API server it has no cluster.
func process(t *testing.T, api API, outcome result.Outcome, settings string) (*Process, *observer.ObservedLogs) {
	t.Helper()
	cfg, err := config.ParseDaemonSet([]byte(settings), "test")
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.DebugLevel)
	p := &Process{Config: cfg, Node: "n", Log: zap.New(core), Metrics: NewMetrics("n", time.Minute),
		Verify: func(context.Context, worker.Config) result.Report {
			check := result.Check{Name: "dns", Type: "dns", Severity: "required", Outcome: outcome}
			return result.Report{Version: 1, Node: "n", Outcome: outcome, Checks: []result.Check{check}}
		}}
	if api != nil {
		p.Connect = func() (API, error) { return api, nil }
	}
	return p, logs
}

// logged are the messages of a log.
func logged(logs *observer.ObservedLogs) string {
	var lines []string
	for _, entry := range logs.All() {
		lines = append(lines, fmt.Sprint(entry.Message, entry.ContextMap()))
	}
	return strings.Join(lines, "\n")
}

// A dry run performs the checks, logs what would be written, and writes nothing.
func TestDryRunWritesNothing(t *testing.T) {
	refused := func(r apiserver.Request) int { return http.StatusForbidden }
	for name, test := range map[string]struct {
		api     *withDrivers
		outcome result.Outcome
		want    []string
		not     string
	}{
		"it passes": {gatedNode(always, "disk.example.com"), result.Passed, []string{"gating taints would be removed",
			"verified label would be changed", `"lastOutcome":"passed"`}, "would wait"},
		"it fails":              {gatedNode(always, "disk.example.com"), result.Failed, []string{`"lastOutcome":"failed"`}, "would be removed"},
		"a driver is missing":   {gatedNode(always), result.Passed, []string{"the node would wait for CSI driver disk.example.com"}, "cannot be read"},
		"the node is forbidden": {gatedNode(refused), result.Passed, []string{"cannot read the node", "the checks ended"}, "record"},
		"without a cluster":     {nil, result.Passed, []string{"the checks ended"}, "record"},
	} {
		var api API
		if test.api != nil {
			api = test.api
		}
		p, logs := process(t, api, test.outcome, csi)
		report, err := p.DryRun(t.Context())
		if err != nil || report.Outcome != test.outcome {
			t.Errorf("%s: outcome %s (%v)", name, report.Outcome, err)
		}
		if test.api != nil && test.api.patches > 0 {
			t.Errorf("%s: %d patches", name, test.api.patches)
		}
		all := logged(logs)
		for _, want := range test.want {
			if !strings.Contains(all, want) {
				t.Errorf("%s: the log lacks %q:\n%s", name, want, all)
			}
		}
		if strings.Contains(all, test.not) {
			t.Errorf("%s: the log has %q:\n%s", name, test.not, all)
		}
	}
}

// The checks wait for a prerequisite, of which the process reads what concerns its own node. Why it cannot be read is in
// the condition, in a text that does not change from try to try.
func TestChecksWaitForAPrerequisite(t *testing.T) {
	for name, test := range map[string]struct {
		status int // of a list of CSINodes
		want   string
	}{
		"missing":     {0, "CSI driver disk.example.com"},
		"forbidden":   {http.StatusForbidden, "cannot be read: Forbidden"},
		"unavailable": {http.StatusServiceUnavailable, "cannot be read: no usable answer from the API server"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				status := test.status
				api := gatedNode(func(r apiserver.Request) int {
					if strings.HasPrefix(r.Path, "/apis/storage.k8s.io/") {
						return status
					}
					return 0
				})
				p, _ := process(t, api, result.Passed, csi)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- p.Run(ctx) }()
				time.Sleep(20 * time.Second)
				n := api.look()
				message := ""
				for _, c := range n.Status.Conditions {
					if c.Type == "node-ready/Verified" {
						message = c.Message
					}
				}
				if verified(n) || !strings.Contains(message, test.want) {
					t.Errorf("verified %t, the condition says %q, want %q", verified(n), message, test.want)
				}
				api.mu.Lock()
				status, api.drivers = 0, []string{"disk.example.com"}
				if own := "fieldSelector=metadata.name%3Dn"; len(api.lists) == 0 || !strings.Contains(api.lists[0], own) {
					t.Errorf("it lists %q, want %s", api.lists, own)
				}
				api.mu.Unlock()
				time.Sleep(2 * time.Minute)
				if n := api.look(); !verified(n) {
					t.Errorf("the driver is registered, and the node has %v", n.Spec.Taints)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
