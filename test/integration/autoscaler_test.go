package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// A NodePool that does not list the gating taint: the controller says so on it. While its nodes carry the
// taint, a metric says so too, until the NodePool lists it.
func TestUnknownStartupTaint(t *testing.T) {
	key := "test.example/unknown"
	s := begin(t, set("nodeManagement", map[string]any{"taints": []any{map[string]any{"key": key, "value": "true", "effect": "NoSchedule"}}}))
	s.installKarpenter()
	k := s.karpenter()
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "default"}
	pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{}
	s.must(nil, k.Create(s.ctx, pool))
	t.Cleanup(func() { _ = k.Delete(context.WithoutCancel(s.ctx), pool) })
	s.controller()
	s.eventually("an event on the NodePool", func() string {
		list, err := k8s.CoreV1().Events(metav1.NamespaceDefault).List(s.ctx, metav1.ListOptions{FieldSelector: fields.Set{"involvedObject.kind": "NodePool", "involvedObject.name": s.name}.String()})
		s.must(nil, err)
		for _, e := range list.Items {
			if e.Reason == "StartupTaintUnknown" && strings.Contains(e.Message, key+":NoSchedule") {
				return ""
			}
		}
		return fmt.Sprint(list.Items)
	})
	series := `kube_node_ready_unknown_startup_taint{nodepool="` + s.name + `",taint="` + key + `:NoSchedule"} 1`
	// Karpenter has not registered the node, so it keeps the taint.
	s.node("n", pooled(s.name), func(n *nodeagent.NodeSpec) {
		n.Taints = []corev1.Taint{{Key: key, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	})
	s.eventually("the metric", func() string { return s.scraped(series, true) })
	pool.Spec.Template.Spec.StartupTaints = []corev1.Taint{{Key: key, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	s.must(nil, k.Update(s.ctx, pool))
	s.eventually("the metric goes", func() string { return s.scraped(series, false) })
}

// scraped says what is wrong unless a line is among the metrics, or is not.
func (s *suite) scraped(line string, want bool) string {
	s.Helper()
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", s.config["metrics"].(map[string]any)["port"]))
	s.must(nil, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	s.must(nil, err)
	if strings.Contains(string(text), line) != want {
		return fmt.Sprintf("%q is there: %t", line, !want)
	}
	return ""
}
