package integration

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// daemonSet makes one that tolerates everything and runs on the test's nodes.
func (s *suite) daemonSet(name string, change ...func(*appsv1.DaemonSet)) {
	s.Helper()
	labels := map[string]string{"app": name}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			NodeSelector: map[string]string{testLabel: s.name}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "c", Image: tools, Command: []string{"/bin/sleep", "3600"}}}}},
	}}
	for _, f := range change {
		f(ds)
	}
	s.must(k8s.AppsV1().DaemonSets(s.name).Create(s.ctx, ds, metav1.CreateOptions{}))
}

// late is a DaemonSet whose pods cannot start: their image is not there.
func late(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "late:test" }

// intolerant is a DaemonSet whose pods the gating taint keeps off.
func intolerant(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Tolerations = nil }

// arrive lets the pods of a late DaemonSet start.
func (s *suite) arrive(name string) {
	s.Helper()
	s.must(k8s.AppsV1().DaemonSets(s.name).Patch(s.ctx, name, types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"`+tools+`"}]}}}}`), metav1.PatchOptions{}))
}

// Every DaemonSet that the DaemonSet controller puts on the node counts, but for those that are excluded. One that does not
// tolerate the gating taint comes only after the node is released, and is not waited for.
func TestAllDaemonSets(t *testing.T) {
	s := begin(t, func(c map[string]any) {
		namespace := c["nodeManagement"].(map[string]any)["nodeSelector"].(map[string]any)["matchLabels"].(map[string]any)[testLabel]
		prerequisites(map[string]any{"daemonSets": map[string]any{"mode": "auto", "exclude": []any{map[string]any{"namespace": namespace, "name": "broken"}}}})(c)
	})
	s.daemonSet("agent", late)
	s.daemonSet("driver", late)
	s.daemonSet("broken", late)
	s.daemonSet("app", intolerant)
	s.controller()
	n := s.node("a")
	s.waits(n.Name, "Waiting for Ready pods of DaemonSets "+s.name+"/agent (not Ready), "+s.name+"/driver (not Ready)")
	s.arrive("agent")
	f := s.becomes(n.Name, "waiting for the driver alone", func(f marks.Facts) bool {
		return f.Condition != nil && strings.Contains(f.Condition.Message, "DaemonSets "+s.name+"/driver (not Ready)")
	})
	if p := s.workers(n.Name); len(p) > 0 || !f.Gated {
		t.Errorf("%d workers; gated %v", len(p), f.Gated)
	}
	s.arrive("driver")
	s.becomes(n.Name, "verified", isVerified)
	s.eventually("the DaemonSet that does not tolerate the taint comes", func() string {
		pods, err := k8s.CoreV1().Pods(s.name).List(s.ctx, metav1.ListOptions{LabelSelector: "app=app"})
		if err != nil || len(pods.Items) == 0 {
			return fmt.Sprintf("no pod: %v", err)
		}
		return ""
	})
}
