package daemonset

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
)

// oneNode is an API server that holds one Node and applies patches to it. What a real one makes of these requests is shown in
// test/daemonset; here time passes at once.
type oneNode struct {
	mu      sync.Mutex
	node    *corev1.Node
	refuse  func(r apiserver.Request) int // the status in place of an answer; 0 for none
	refused int
	patches int
}

func (o *oneNode) Send(_ context.Context, r apiserver.Request) (apiserver.Response, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if status := o.refuse(r); status != 0 {
		o.refused++
		return apiserver.Response{Status: status, Body: []byte(`{"message":"not now"}`)}, nil
	}
	body, err := json.Marshal(o.node)
	if err != nil {
		return apiserver.Response{}, err
	}
	switch r.ContentType {
	case string(types.MergePatchType):
		body, err = jsonpatch.MergePatch(body, r.Body)
	case string(types.StrategicMergePatchType):
		body, err = strategicpatch.StrategicMergePatch(body, r.Body, &corev1.Node{})
	}
	if err != nil {
		return apiserver.Response{}, err
	}
	if r.Method == http.MethodPatch {
		o.patches++
		o.node = &corev1.Node{}
		err = json.Unmarshal(body, o.node)
	}
	return apiserver.Response{Status: http.StatusOK, Body: body}, err
}

func (o *oneNode) Watch(ctx context.Context, _ string) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

// look is the node as it is now.
func (o *oneNode) look() *corev1.Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.node.DeepCopy()
}

// verifying runs a process for a while on a gated node, whose checks have this outcome.
func verifying(t *testing.T, outcome result.Outcome, refuse func(apiserver.Request) int, during func(*oneNode)) *oneNode {
	t.Helper()
	return running(t, func(*oneNode) result.Outcome { return outcome }, refuse, during)
}

// running is verifying with what the checks do.
func running(t *testing.T, verify func(*oneNode) result.Outcome, refuse func(apiserver.Request) int, during func(*oneNode)) *oneNode {
	t.Helper()
	cfg, err := config.ParseDaemonSet([]byte("reconciliation: {maxRetries: 1}"), "test")
	if err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{}
	n.Name, n.UID, n.ResourceVersion = "n", "uid-n", "1"
	n.Status.NodeInfo.BootID = "b"
	n.Status.NodeInfo.OperatingSystem = "linux"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Spec.Taints = []corev1.Taint{{Key: config.DefaultTaintKey, Effect: corev1.TaintEffectNoSchedule}}
	api := &oneNode{node: n, refuse: refuse}
	ctx, cancel := context.WithCancel(t.Context())
	p := &Process{Config: cfg, Node: "n", Connect: func() (API, error) { return api, nil }, Log: zap.NewNop(),
		Metrics: NewMetrics("n", time.Minute),
		Verify: func(context.Context, worker.Config) result.Report {
			outcome := verify(api)
			check := result.Check{Name: "dns", Type: "dns", Severity: "required", Outcome: outcome}
			return result.Report{Version: 1, Node: "n", Outcome: outcome, Checks: []result.Check{check}}
		}}
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	time.Sleep(25 * time.Second) // shorter than the interval of its looks
	during(api)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return api
}

func always(apiserver.Request) int { return 0 }

func verified(n *corev1.Node) bool {
	return len(n.Spec.Taints) == 0 && n.Labels[config.DefaultLabelKey] == "true"
}

func condition(n *corev1.Node) string {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == "node-ready/Verified" })
	if i < 0 {
		return ""
	}
	return string(n.Status.Conditions[i].Status)
}

// A pass opens the gate, a failure leaves it closed, and what proves nothing does as well.
func TestWhatAnOutcomeDoes(t *testing.T) {
	for outcome, want := range map[result.Outcome]struct {
		verified          bool
		record, condition string
	}{
		result.Passed:       {true, `"lastOutcome":"passed"`, "True"},
		result.Failed:       {false, `"lastOutcome":"failed"`, "False"},
		result.Inconclusive: {false, `"lastOutcome":"inconclusive"`, "Unknown"},
	} {
		t.Run(string(outcome), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				verifying(t, outcome, always, func(api *oneNode) {
					n := api.look()
					if verified(n) != want.verified || !strings.Contains(n.Annotations["node-ready/record"], want.record) ||
						condition(n) != want.condition {
						t.Errorf("taints %v, labels %v, record %s, condition %s",
							n.Spec.Taints, n.Labels, n.Annotations["node-ready/record"], condition(n))
					}
				})
			})
		})
	}
}

// A result from before somebody excluded the node says nothing about it once it is verified again.
func TestAResultDoesNotOutliveAnOptOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		annotate := func(api *oneNode, annotations map[string]string) {
			api.mu.Lock()
			defer api.mu.Unlock()
			api.node.Annotations = annotations
		}
		verify := func(api *oneNode) result.Outcome {
			if runs++; runs > 1 {
				return result.Failed
			}
			annotate(api, map[string]string{"node-ready/skip": "true"})
			return result.Passed
		}
		running(t, verify, always, func(api *oneNode) {
			annotate(api, nil)
			time.Sleep(2 * time.Minute)
			if n := api.look(); verified(n) || runs < 2 {
				t.Errorf("verified %t after %d runs", verified(n), runs)
			}
		})
	})
}

// A record that the API server refuses does not count as written: the node is released once it is taken.
func TestARefusedRecordIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusing := true
		refuse := func(r apiserver.Request) int {
			if refusing && r.Method == http.MethodPatch && r.ContentType == string(types.MergePatchType) {
				return http.StatusForbidden
			}
			return 0
		}
		verifying(t, result.Passed, refuse, func(api *oneNode) {
			if n := api.look(); verified(n) || api.refused < 2 {
				t.Errorf("verified %t after %d refused writes", verified(n), api.refused)
			}
			api.mu.Lock()
			refusing = false
			api.mu.Unlock()
			time.Sleep(20 * time.Second)
			if n := api.look(); !verified(n) {
				t.Errorf("not verified once writes are taken: %v %v", n.Spec.Taints, n.Labels)
			}
		})
	})
}

// Requests that fail are tried again ever more slowly, and end with the process.
func TestRequestsThatFailAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := func(apiserver.Request) int { return http.StatusServiceUnavailable }
		api := verifying(t, result.Passed, down, func(*oneNode) { time.Sleep(10 * time.Minute) })
		if api.patches != 0 || api.refused < 60 || api.refused > 140 {
			t.Errorf("%d patches, %d requests in 10 minutes: want one every 5 to 10 s", api.patches, api.refused)
		}
	})
}

// Who labels a node by hand has its DaemonSet take the process off, maybe before that was seen: the gate is opened on the way
// out. A node that passed is not looked at again.
func TestTheLastLookAtTheNode(t *testing.T) {
	for outcome, looks := range map[result.Outcome]bool{result.Failed: true, result.Passed: false} {
		t.Run(string(outcome), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				read := 0
				count := func(r apiserver.Request) int {
					if r.Method == http.MethodGet {
						read++
					}
					return 0
				}
				before := 0
				api := verifying(t, outcome, count, func(api *oneNode) {
					api.mu.Lock()
					defer api.mu.Unlock()
					before = read
					api.node.Labels = map[string]string{config.DefaultLabelKey: "true"}
				})
				if n := api.look(); !verified(n) || (read > before) != looks {
					t.Errorf("taints %v, %d reads at the end", n.Spec.Taints, read-before)
				}
			})
		})
	}
}
