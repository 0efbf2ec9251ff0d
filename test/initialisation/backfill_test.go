package initialisation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

const unverified = "node-ready/unverified"

// backfills are values under which nodes of the test are released by a condition alone.
func (w *world) backfills() string {
	return fmt.Sprintf(`controller: {config: {admission: {backfill: true}, worker: {checks: []}, nodeManagement: {
  nodeSelector: {matchLabels: {%s: %s}}, completedAnnotation: startup.k8s.io/completedAt, prerequisites: {conditions: [{type: example.com/Warm}]}}}}`, testLabel, w.name)
}

func tainted(n *corev1.Node) bool   { return carries(n, unverified) }
func untainted(n *corev1.Node) bool { return !carries(n, unverified) }

func labelled(key, value string) func(*nodeagent.NodeSpec) {
	return func(n *nodeagent.NodeSpec) { n.Labels[key] = value }
}

func annotated(key, value string) func(*nodeagent.NodeSpec) {
	return func(n *nodeagent.NodeSpec) { n.Annotations = map[string]string{key: value} }
}

// Of the nodes that came while nothing was there to taint them, those are tainted that may be, within seconds, and no others.
func TestBackfill(t *testing.T) {
	w := begin(t)
	busy := w.node("busy")
	w.ordinary(busy, bound(busy))
	daemon, static := w.node("daemon", labelled("daemon", "here")), w.node("static")
	w.daemonSet("daemon", map[string]string{"daemon": "here"})
	w.comes("backfill-daemons", daemon)
	w.ordinary(static, bound(static), func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: static, UID: w.get(static).UID}}
	})
	spared := []string{
		busy, w.node("control", labelled("node-role.kubernetes.io/control-plane", "")), w.node("system", labelled("kubernetes.azure.com/mode", "system")),
		w.node("unselected", labelled(testLabel, "another")), w.node("verified", labelled("node-ready/verified", "true")),
		w.node("skipped", annotated("node-ready/skip", "true")), w.node("completed", annotated(completedAt, "1")),
	}
	missed := []string{w.node("empty"), daemon, static}
	began := time.Now()
	w.install(w.backfills())
	for _, n := range missed {
		w.becomes(n, "tainted", tainted)
	}
	t.Logf("tainted %s after the controller was started", time.Since(began).Round(time.Millisecond))
	live := w.node("live", func(n *nodeagent.NodeSpec) { n.NotReady = true })
	w.becomes(live, "tainted", tainted)
	for _, n := range spared {
		w.stays(200*time.Millisecond, n, "untainted", untainted)
	}
	w.scraped(`kube_node_ready_backfills_total{result="tainted"} 4`)
	w.scraped(`kube_node_ready_backfills_total{result="occupied"} 1`)
	w.eventually("the event", func() string {
		l, err := k8s.EventsV1().Events("default").List(w.ctx, metav1.ListOptions{FieldSelector: "reason=Backfilled"})
		w.must(l, err)
		for _, e := range l.Items {
			if e.Regarding.Name == missed[0] && e.Type == "Warning" && e.Action == "AddTaint" && strings.Contains(e.Note, unverified+":NoSchedule was added") {
				return ""
			}
		}
		return fmt.Sprintf("not among %d", len(l.Items))
	})

	// kubeadm labels a control-plane node only once it has registered: tainted by then, it is verified and released for good.
	late := live
	w.patchNode(late, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`)
	for _, n := range []string{missed[0], late} {
		w.condition(n, "example.com/Warm")
		w.becomes(n, "released", func(n *corev1.Node) bool { return untainted(n) && n.Labels["node-ready/verified"] == "true" })
	}
	// Another node of its name is another node, and one that is taken into service before it is looked at is none of ours.
	w.must(nil, k8s.CoreV1().Nodes().Delete(w.ctx, missed[0], metav1.DeleteOptions{}))
	w.becomes(w.node("empty"), "tainted", tainted)
	w.stays(time.Second, late, "untainted", untainted)
	w.must(nil, k8s.CoreV1().Nodes().Delete(w.ctx, w.name+"-unselected", metav1.DeleteOptions{}))
}

// daemonSet makes a DaemonSet for nodes of these labels, which tolerates no taint.
func (w *world) daemonSet(name string, nodes map[string]string) {
	w.Helper()
	const namespace = "backfill-daemons"
	w.must(nil, install.Apply(w.ctx, control, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+"}\n")))
	own := map[string]string{"app": name}
	w.must(k8s.AppsV1().DaemonSets(namespace).Create(w.ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: own}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: own},
			Spec: corev1.PodSpec{NodeSelector: nodes, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}, metav1.CreateOptions{}))
}
