package watch

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// TestSlimOwnerTwice transforms an owner again and again, as informers may (k8s.io/client-go tools/cache
// TransformFunc): it keeps what it is found by.
func TestSlimOwnerTwice(t *testing.T) {
	slim := kind.Slim(slimOwner(owner.Named("NodeClaim")))
	var o any = &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "c", "deletionTimestamp": "2026-01-02T03:04:05Z", "labels": map[string]any{"a": "b"}},
		"status":   map[string]any{"providerID": "kwok://n", "nodeName": "n"},
	}}
	for range 3 {
		o = slim(o)
		u := o.(*unstructured.Unstructured)
		if ids, err := machine(o); err != nil || !slices.Equal(ids, []string{"kwok://n"}) || u.GetDeletionTimestamp() == nil || len(u.GetLabels()) > 0 {
			t.Fatalf("%q, %v of %+v", ids, err, u)
		}
	}
}
