// Package initialisation proves how nodes that are warmed up first are released. It uses the files of examples, with
// the chart's rights and on a real API server, scheduler and controller manager. The tests play kubelets by patching
// pods' statuses. They run one after the other, because each installs the chart anew.
package initialisation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
	"github.com/kube-node-ready/kube-node-ready/test/helmrender"
)

const (
	chart    = "../../deploy/helm/kube-node-ready"
	examples = "../../examples"
	// testLabel is on the nodes of a test, with its name.
	testLabel = "initialisation-test"
	// patience bounds every wait; the machine may be busy.
	patience = 90 * time.Second
)

var (
	control *cluster.Cluster
	k8s     kubernetes.Interface
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx := context.Background()
	var err error
	if control, err = cluster.Start(ctx, cluster.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer control.Stop()
	k8s = kubernetes.NewForConfigOrDie(control.Config())
	for _, manifest := range []string{"apiVersion: v1\nkind: Namespace\nmetadata: {name: " + install.Namespace + "}\n", file(chart, "files/nodereadinessrules.yaml")} {
		if err := install.Apply(ctx, control, []byte(manifest)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

func file(path ...string) string {
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		panic(err)
	}
	return string(content)
}

// world is what one test has of its own.
type world struct {
	*testing.T
	ctx  context.Context
	name string
	now  *install.Controller
}

func begin(t *testing.T) *world {
	w := &world{T: t, ctx: t.Context(), name: strings.ToLower(strings.TrimPrefix(t.Name(), "Test"))}
	t.Cleanup(w.end)
	return w
}

// end removes what the test has made.
func (w *world) end() {
	w.stop()
	if w.Failed() && w.now != nil {
		if b, err := os.ReadFile(w.now.LogFile); err == nil {
			w.Logf("%s:\n%s", filepath.Base(w.now.LogFile), b)
		}
	}
	ctx := context.Background()
	pods, _ := k8s.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	_ = k8s.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: testLabel + "=" + w.name})
	for _, p := range pods.Items {
		if p.Namespace != metav1.NamespaceSystem {
			_ = k8s.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		}
	}
}

func (w *world) must(_ any, err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// rendered is the chart's rights, and the configuration that it would mount, for values of these files and what else is given.
func (w *world) rendered(extra string, values ...string) (rights []byte, config map[string]any) {
	w.Helper()
	all := []string{extra}
	for _, v := range values {
		all = append(all, file(v))
	}
	out := helmrender.Chart(w, install.Namespace, all)
	config, err := install.Configuration([]byte(out))
	w.must(nil, err)
	for document := range strings.SplitSeq("\n"+out, "\n---\n") {
		var o struct{ Kind string }
		w.must(nil, yaml.Unmarshal([]byte(document), &o))
		switch o.Kind {
		case "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
			rights = append(rights, "---\n"+document+"\n"...)
		}
	}
	return rights, config
}

// install makes the chart's rights and starts the controller with exactly those and the chart's configuration. Nothing here may
// depend on a resync.
func (w *world) install(extra string, values ...string) {
	w.Helper()
	rights, config := w.rendered(extra, values...)
	w.must(nil, install.Apply(w.ctx, control, rights))
	w.start(config)
}

func (w *world) start(config map[string]any, args ...string) {
	w.Helper()
	config["reconciliation"].(map[string]any)["intervalSeconds"] = 3600
	c, err := install.StartController(w.ctx, control, w.name, config, args...)
	w.must(nil, err)
	w.now = c
}

// stop ends the controller.
func (w *world) stop() {
	if w.now != nil {
		w.now.Terminate(10 * time.Second)
	}
}

// node registers a node as a kubelet does.
func (w *world) node(suffix string, change ...func(*nodeagent.NodeSpec)) string {
	w.Helper()
	spec := nodeagent.NodeSpec{Name: w.name + "-" + suffix, Labels: map[string]string{testLabel: w.name}}
	for _, f := range change {
		f(&spec)
	}
	w.must(k8s.CoreV1().Nodes().Create(w.ctx, spec.Object(), metav1.CreateOptions{}))
	return spec.Name
}

func createdWith(key, value string) func(*nodeagent.NodeSpec) {
	return func(n *nodeagent.NodeSpec) {
		n.Taints = append(n.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule})
	}
}

func (w *world) get(name string) *corev1.Node {
	w.Helper()
	n, err := k8s.CoreV1().Nodes().Get(w.ctx, name, metav1.GetOptions{})
	w.must(n, err)
	return n
}

func carries(n *corev1.Node, key string) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == key {
			return true
		}
	}
	return false
}

// becomes waits until a node is as wanted.
func (w *world) becomes(name, what string, want func(*corev1.Node) bool) *corev1.Node {
	w.Helper()
	var n *corev1.Node
	w.eventually(name+" becomes "+what, func() string {
		if n = w.get(name); want(n) {
			return ""
		}
		return fmt.Sprint(n.Spec.Taints, n.Labels, n.Annotations, said(n))
	})
	return n
}

// staysHeld checks for a while that a node is held.
func (w *world) staysHeld(d time.Duration, name string) {
	w.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if n := w.get(name); !held(n) {
			w.Fatalf("%s is no longer held: %v %v %v", name, n.Spec.Taints, n.Labels, said(n))
		}
	}
}

// said is what the node's condition says.
func said(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == "node-ready/Verified" {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

func (w *world) eventually(what string, ok func() string) {
	w.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		fault := ok()
		if fault == "" {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("%s: %s", what, fault)
		}
	}
}

// condition sets a node's condition, as an agent would.
func (w *world) condition(name, condition string) {
	w.Helper()
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":"True","reason":"Test","lastTransitionTime":%q}]}}`,
		condition, time.Now().UTC().Format(time.RFC3339))
	w.must(k8s.CoreV1().Nodes().Patch(w.ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"))
}

// ordinary makes a pod that only this node is good for.
func (w *world) ordinary(node string) {
	w.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ordinary-" + node}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{corev1.LabelHostname: node}, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	w.must(k8s.CoreV1().Pods(p.Namespace).Create(w.ctx, p, metav1.CreateOptions{}))
}

// scheduled reports whether the node's ordinary pod was bound.
func (w *world) scheduled(node string) bool {
	w.Helper()
	p, err := k8s.CoreV1().Pods("default").Get(w.ctx, "ordinary-"+node, metav1.GetOptions{})
	w.must(p, err)
	return p.Spec.NodeName == node
}

// on lists the warm-up pods that are bound to the node.
func (w *world) on(node string) []corev1.Pod {
	w.Helper()
	l, err := k8s.CoreV1().Pods(warmUps).List(w.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	w.must(l, err)
	return l.Items
}

// comes waits until the DaemonSet controller's pod is bound to the node.
func (w *world) comes(node string) corev1.Pod {
	w.Helper()
	var pods []corev1.Pod
	w.eventually("a warm-up pod comes to "+node, func() string {
		if pods = w.on(node); len(pods) == 1 {
			return ""
		}
		return fmt.Sprintf("%d pods", len(pods))
	})
	return pods[0]
}

// report reports a pod as its kubelet would.
func (w *world) report(p corev1.Pod, ready corev1.ConditionStatus) {
	w.Helper()
	patch, err := json.Marshal(map[string]any{"status": corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}})
	w.must(nil, err)
	w.must(k8s.CoreV1().Pods(p.Namespace).Patch(w.ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"))
}

// workers counts the worker pods that there are.
func (w *world) workers() int {
	w.Helper()
	l, err := k8s.CoreV1().Pods(install.Namespace).List(w.ctx, metav1.ListOptions{})
	w.must(l, err)
	return len(l.Items)
}
