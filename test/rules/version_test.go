package rules

import (
	"os"
	"sync/atomic"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// A definition that serves another version alone is none: rules are absent, and nothing waits for them.
func TestAnotherVersionIsServed(t *testing.T) {
	w := in(t)
	content, err := os.ReadFile(ours)
	w.must(err)
	var crd map[string]any
	w.must(yaml.Unmarshal(content, &crd))
	spec := crd["spec"].(map[string]any)
	old := spec["versions"].([]any)[0].(map[string]any)
	next := map[string]any{}
	for k, v := range old {
		next[k] = v
	}
	old["served"], old["storage"] = false, false
	next["name"] = "v1beta1"
	spec["versions"] = []any{old, next}
	content, err = yaml.Marshal(crd)
	w.must(err)
	remove := func() {
		if out, err := kubectl("delete", "crd", "nodereadinessrules.readiness.node.x-k8s.io", "--ignore-not-found", "--timeout=60s"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	remove()
	w.must(install.Apply(w.ctx, control, content))
	defer func() {
		remove()
		w.must(define(w.ctx, ours))
	}()
	w.eventually("the other version is served", func() string {
		if out, err := kubectl("get", "--raw", "/apis/readiness.node.x-k8s.io/v1beta1"); err != nil {
			return string(out)
		}
		return ""
	})
	out, err := kubectl("get", "--raw", "/apis/readiness.node.x-k8s.io/v1alpha1")
	t.Logf("%s %v", out, err)
	w.becomes(w.watches(new(atomic.Int64), &events{}), rule.Absent)
}
