package initialisation

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

const (
	initializing = "startup.k8s.io/initializing"
	network      = "readiness.k8s.io/NetworkReady"
	completedAt  = "startup.k8s.io/completedAt"
	warmUps      = "node-warm-up"
)

// released reports whether the node takes workloads, and says so.
func released(n *corev1.Node) bool {
	return !carries(n, initializing) && !carries(n, network) && n.Labels["node-ready/verified"] == "true" && n.Annotations[completedAt] != ""
}

func held(n *corev1.Node) bool { return carries(n, initializing) && n.Annotations[completedAt] == "" }

// The example gates: its pod comes to the tainted node, which takes an ordinary pod only once that is Ready, or says it is.
func TestWarmUp(t *testing.T) {
	w := begin(t)
	w.must(nil, install.Apply(w.ctx, control, []byte(file(examples, "warm-up/daemonset.yaml"))))
	w.install("", examples+"/warm-up/values.yaml")
	began := time.Now().Unix()
	for suffix, ready := range map[string]func(corev1.Pod){
		"ready": func(p corev1.Pod) { w.report(p, corev1.ConditionTrue) },
		"says": func(p corev1.Pod) {
			w.must(w.annotate(p, "startup.k8s.io/ready", "false"))
			w.staysHeld(500*time.Millisecond, p.Spec.NodeName)
			w.must(w.annotate(p, "startup.k8s.io/ready", "true"))
		},
	} {
		n := w.node(suffix, createdWith(initializing, "wait"))
		w.ordinary(n)
		p := w.comes(n)
		if probe := p.Spec.Containers[0].ReadinessProbe; probe == nil || len(p.Spec.InitContainers) == 0 {
			t.Errorf("%s: no readiness probe, or no image is pulled", n)
		}
		w.report(p, corev1.ConditionFalse)
		w.becomes(n, "waiting for its warm-up", func(n *corev1.Node) bool {
			return strings.HasPrefix(said(n), "WaitingForPrerequisites: Waiting for a pod app.kubernetes.io/name=warm-up in namespace node-warm-up")
		})
		w.staysHeld(time.Second, n)
		if w.scheduled(n) {
			t.Errorf("%s: an ordinary pod came before the warm-up was over", n)
		}
		ready(p)
		at, err := strconv.ParseInt(w.becomes(n, "released", released).Annotations[completedAt], 10, 64)
		if err != nil || at < began || at > time.Now().Unix() {
			t.Errorf("%s: completed at %d, between %d and now: %v", n, at, began, err)
		}
		w.eventually("an ordinary pod comes to "+n, func() string {
			if w.scheduled(n) {
				return ""
			}
			return "it is pending"
		})
	}
	if k := w.workers(); k > 0 {
		t.Errorf("%d worker pods were made", k)
	}
}

// A node is held for its minimum although its warm-up was quick, also by a successor.
func TestMinimumHold(t *testing.T) {
	const seconds = 8
	w := begin(t)
	w.must(nil, install.Apply(w.ctx, control, []byte(file(examples, "warm-up/daemonset.yaml"))))
	w.install("controller: {config: {nodeManagement: {minimumHoldSeconds: 8}}}", examples+"/warm-up/values.yaml")
	n := w.node("a", createdWith(initializing, "wait"))
	w.report(w.comes(n), corev1.ConditionTrue)
	w.becomes(n, "held", func(n *corev1.Node) bool {
		return held(n) && strings.HasPrefix(said(n), "WaitingForPrerequisites: Waiting for the end of nodeManagement.minimumHoldSeconds (8) at ")
	})
	w.stop()
	w.install("controller: {config: {nodeManagement: {minimumHoldSeconds: 8}}}", examples+"/warm-up/values.yaml")
	got := w.becomes(n, "released", released)
	at, err := strconv.ParseInt(got.Annotations[completedAt], 10, 64)
	if took := at - got.CreationTimestamp.Unix(); err != nil || took < seconds {
		t.Errorf("released after %d s: %v", took, err)
	}
	t.Logf("released %d s after it was created; the hold is %d s", at-got.CreationTimestamp.Unix(), seconds)
}

// The rule's taint goes first, and only then does the warm-up come; workloads come when both are over.
func TestTwoPhases(t *testing.T) {
	w := begin(t)
	w.must(nil, install.Apply(w.ctx, control, []byte(file(examples, "warm-up/daemonset.yaml"))))
	w.must(nil, install.Apply(w.ctx, control, []byte(file(examples, "cni-readiness/network-readiness-rule.yaml"))))
	w.install("", examples+"/warm-up-two-phases/values.yaml")
	n := w.node("a", createdWith(network, "pending"), createdWith(initializing, "wait"))
	unruled := w.node("unruled", createdWith(initializing, "wait"))
	w.ordinary(n)
	for _, name := range []string{n, unruled} {
		w.becomes(name, "waiting for its network", func(n *corev1.Node) bool {
			return carries(n, network) && held(n) && strings.Contains(said(n), "the node's condition projectcalico.org/CalicoReady to be True")
		})
	}
	if pods := w.on(n); len(pods) > 0 {
		t.Errorf("the second phase began before the first was over: %s", pods[0].Name)
	}
	w.condition(n, "projectcalico.org/CalicoReady")
	p := w.comes(n)
	w.becomes(n, "in its second phase", func(n *corev1.Node) bool {
		return !carries(n, network) && held(n) && !strings.Contains(said(n), "CalicoReady")
	})
	w.report(p, corev1.ConditionFalse)
	w.staysHeld(500*time.Millisecond, n)
	if w.scheduled(n) {
		t.Error("an ordinary pod came before the warm-up was over")
	}
	w.report(p, corev1.ConditionTrue)
	w.becomes(n, "released", released)

	// The controller adds the rule's taint to a node that came without, and holds it whether or not its warm-up was early.
	for _, p := range w.on(unruled) {
		w.report(p, corev1.ConditionTrue)
	}
	w.staysHeld(500*time.Millisecond, unruled)
	w.condition(unruled, "projectcalico.org/CalicoReady")
	w.report(w.comes(unruled), corev1.ConditionTrue)
	w.becomes(unruled, "released", released)
}

func (w *world) annotate(p corev1.Pod, key, value string) (any, error) {
	return k8s.CoreV1().Pods(p.Namespace).Patch(w.ctx, p.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+key+`":"`+value+`"}}}`), metav1.PatchOptions{})
}
