// Package rules proves, on a real API server and with the controller as a process, what NodeReadinessRules do to nodes.
// Of several controllers in a cluster, one serves rules. So tests that need a controller of their own run one after the
// other. After that, all others run in parallel under one controller. What waits for a time is proved on a clock that
// is set (serving_test.go, internal/rules).
package rules

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

const (
	// testLabel is on the nodes of a test, with its name.
	testLabel = "rules-test"
	// patience bounds every wait; the machine may be busy.
	patience = 90 * time.Second
	// ours and nrcs are the two definitions of the resource.
	ours = "../../deploy/helm/kube-node-ready/files/nodereadinessrules.yaml"
	nrcs = "testdata/nrc-v0.5.0.yaml"
)

var (
	control *cluster.Cluster
	api     client.WithWatch
	k8s     kubernetes.Interface
	agent   *nodeagent.Agent
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	ctx := context.Background()
	var err error
	if control, err = cluster.Start(ctx, cluster.Options{WithoutControllerManager: true, WithoutScheduler: true}); err == nil {
		defer control.Stop()
		err = begin(ctx)
	}
	var images map[string]nodeagent.Image
	if err == nil {
		images, err = install.Images()
	}
	dns := ""
	if err == nil {
		dns, err = control.StartDNS(ctx, nil)
	}
	if err == nil {
		agent, err = nodeagent.Start(ctx, control, nodeagent.Options{DNS: dns, Images: images})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer agent.Stop()
	_ = flag.Set("test.parallel", "20") // tests wait far more than they compute; the command line overrides it
	return m.Run()
}

func begin(ctx context.Context) error {
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	// The chart's rights, so that every test shows that they are enough.
	if err := install.Rights(ctx, control); err != nil {
		return err
	}
	if err := define(ctx, ours); err != nil {
		return err
	}
	config := control.Config()
	config.QPS = -1
	k8s = kubernetes.NewForConfigOrDie(config)
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		var err error
		if api, err = client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme}); err == nil {
			err = api.List(ctx, &v1alpha1.NodeReadinessRuleList{})
		}
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// define installs a definition of the resource.
func define(ctx context.Context, file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return install.Apply(ctx, control, content)
}

// world is what one test has of its own.
type world struct {
	*testing.T
	ctx    context.Context
	name   string
	config map[string]any
	now    *install.Controller
	beside bool // now is the controller of several tests
	rules  []string
}

// in begins a test with controllers of its own.
func in(t *testing.T) *world {
	t.Helper()
	inputs.Track(t, ours) // TestMain installs it
	w := &world{T: t, ctx: t.Context(), name: t.Name()[len("Test"):], config: map[string]any{"reconciliation": map[string]any{"intervalSeconds": 1}}}
	t.Cleanup(w.end)
	return w
}

// rival is a rule's taint that verification owns under the shared controller, and verify the label of the nodes that it verifies.
const rival, verify = "readiness.k8s.io/both", "verify"

var shared = sync.OnceValues(func() (*install.Controller, error) {
	return install.StartController(context.Background(), control, "shared", map[string]any{
		"reconciliation": map[string]any{"intervalSeconds": 1},
		"worker":         map[string]any{"image": install.WorkerImage(), "checks": []any{map[string]any{"name": "api", "type": "kubernetesAPI"}}},
		"nodeManagement": map[string]any{
			"taints":       []any{map[string]any{"key": "node-ready/unverified", "value": "true", "effect": "NoSchedule"}, map[string]any{"key": rival, "effect": "NoSchedule"}},
			"nodeSelector": map[string]any{"matchLabels": map[string]any{verify: "true"}},
		},
	})
})

// beside begins a test that runs beside others, under the controller that they share.
func beside(t *testing.T) *world {
	t.Helper()
	w := in(t)
	t.Parallel()
	c, err := shared()
	w.must(err)
	w.now, w.beside = c, true
	return w
}

// end removes what the test has made.
func (w *world) end() {
	if !w.beside {
		w.stop()
	}
	if w.Failed() && w.now != nil {
		if b, err := os.ReadFile(w.now.LogFile); err == nil {
			w.Logf("%s:\n%s", filepath.Base(w.now.LogFile), b)
		}
	}
	ctx := context.Background()
	if !w.beside {
		var leases coordinationv1.LeaseList
		_ = api.List(ctx, &leases, client.MatchingFields{"metadata.name": rule.NRCLease})
		for i := range leases.Items {
			_ = api.Delete(ctx, &leases.Items[i])
		}
	}
	w.forget(ctx)
	_ = api.DeleteAllOf(ctx, &corev1.Node{}, client.MatchingLabels{testLabel: w.name})
}

// forget deletes the test's rules, whatever finalizer is on them.
func (w *world) forget(ctx context.Context) {
	for _, name := range w.rules {
		r := &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_ = api.Delete(ctx, r)
		_ = api.Patch(ctx, r, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
	}
}

// controller starts the controller as the chart's service account, and waits until it is ready.
func (w *world) controller(args ...string) *process.Process {
	w.Helper()
	c, err := install.StartController(w.ctx, control, w.name, w.config, args...)
	if err != nil {
		w.Fatal(err)
	}
	w.now = c
	return c.Process
}

// stop ends the controller.
func (w *world) stop() {
	if w.now != nil {
		w.now.Terminate(10 * time.Second)
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// eventually waits until ok returns an empty string; else the test fails with what it returned last.
func (w *world) eventually(what string, ok func() string) {
	w.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(30 * time.Millisecond) {
		fault := ok()
		if fault == "" {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("%s: %s", what, fault)
		}
	}
}

// node makes a node of the test.
func (w *world) node(name string, change ...func(*corev1.Node)) *corev1.Node {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{testLabel: w.name}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, f := range change {
		f(n)
	}
	w.must(api.Create(w.ctx, n))
	return n
}

// rule makes a continuous rule for the nodes of the test: condition agent/Ready, taint readiness.k8s.io/<name>.
func (w *world) rule(name string, change ...func(*v1alpha1.NodeReadinessRule)) *v1alpha1.NodeReadinessRule {
	w.Helper()
	r := w.draft(name, change...)
	w.must(api.Create(w.ctx, r))
	return r
}

// draft is a rule that is not created yet.
func (w *world) draft(name string, change ...func(*v1alpha1.NodeReadinessRule)) *v1alpha1.NodeReadinessRule {
	w.rules = append(w.rules, name)
	r := &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeReadinessRuleSpec{
		Conditions:      []v1alpha1.ConditionRequirement{{Type: "agent/Ready", RequiredStatus: corev1.ConditionTrue}},
		EnforcementMode: v1alpha1.ModeContinuous,
		Taint:           corev1.Taint{Key: "readiness.k8s.io/" + name, Value: "wait", Effect: corev1.TaintEffectNoSchedule},
		NodeSelector:    metav1.LabelSelector{MatchLabels: map[string]string{testLabel: w.name}},
	}}
	for _, f := range change {
		f(r)
	}
	return r
}

// get reads a node.
func (w *world) get(name string) *corev1.Node {
	w.Helper()
	n := &corev1.Node{}
	w.must(api.Get(w.ctx, client.ObjectKey{Name: name}, n))
	return n
}

// rules reads a rule.
func (w *world) read(rule string) *v1alpha1.NodeReadinessRule {
	w.Helper()
	r := &v1alpha1.NodeReadinessRule{}
	w.must(api.Get(w.ctx, client.ObjectKey{Name: rule}, r))
	return r
}

// patch changes an object.
func (w *world) patch(o client.Object, patch string) {
	w.Helper()
	w.must(api.Patch(w.ctx, o, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// condition sets the condition agent/Ready of a node, as an agent would.
func (w *world) condition(node string, status corev1.ConditionStatus) {
	w.Helper()
	patch, err := yaml.YAMLToJSON(fmt.Appendf(nil, `status: {conditions: [{type: %q, status: %q, reason: Test, lastTransitionTime: %q, lastHeartbeatTime: %q}]}`,
		"agent/Ready", status, stamp(), stamp()))
	w.must(err)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	w.must(api.Status().Patch(w.ctx, n, client.RawPatch("application/strategic-merge-patch+json", patch)))
}

func stamp() string { return time.Now().UTC().Format(time.RFC3339) }

// carries reports the value of a taint of the node, and whether it is there.
func carries(n *corev1.Node, key string) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == key {
			return true
		}
	}
	return false
}

// tainted waits until the node carries the rule's taint, or does not.
func (w *world) tainted(node, rule string, want bool) *corev1.Node {
	w.Helper()
	var n *corev1.Node
	w.eventually(fmt.Sprintf("%s carries %s: %v", node, rule, want), func() string {
		if n = w.get(node); carries(n, "readiness.k8s.io/"+rule) == want {
			return ""
		}
		return fmt.Sprint(n.Spec.Taints, n.Annotations)
	})
	return n
}

// scraped says what the controller's metrics lack; empty where they have the line.
func (w *world) scraped(line string) string {
	resp, err := http.Get(w.now.MetricsURL)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	if strings.Contains("\n"+string(body), "\n"+line+"\n") {
		return ""
	}
	name, _, _ := strings.Cut(line, "{")
	var have []string
	for _, l := range strings.Split(string(body), "\n") {
		if strings.HasPrefix(l, name) {
			have = append(have, l)
		}
	}
	return fmt.Sprintf("want %s in %v", line, have)
}
