package nodecache

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// informed is a cache that has an informer, and neither Get nor List: those copy.
type informed struct {
	cache.Cache
	informer toolscache.SharedIndexInformer
}

func (c informed) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return c.informer, nil
}

func holding(t *testing.T, nodes ...*corev1.Node) informed {
	t.Helper()
	i := toolscache.NewSharedIndexInformer(cachetesting.NewFakeControllerSource(), &corev1.Node{}, 0, toolscache.Indexers{})
	for _, n := range nodes {
		if err := i.GetStore().Add(n); err != nil {
			t.Fatal(err)
		}
	}
	return informed{informer: i}
}

func named(name string, taints ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, key := range taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key})
	}
	return n
}

// A look at all nodes of the cache copies none of them.
func TestEachCopiesNoNode(t *testing.T) {
	a, b, c := named("a"), named("b"), named("c")
	nodes, err := Each(t.Context(), holding(t, b, c, a))
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Collect(nodes); !slices.Equal(got, []*corev1.Node{a, b, c}) {
		t.Errorf("got %v, want those of the store by name", got)
	}
}

// Names has all nodes, and Tainted those that have such a taint.
func TestStoreNamesNodes(t *testing.T) {
	store, err := StoreOf(t.Context(), holding(t, named("a", "another's", "ours"), named("b", "another's"), named("c")), &corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	s := Nodes{store}
	if got := slices.Sorted(slices.Values(s.Names())); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("the names are %q", got)
	}
	if got := s.Tainted(func(t corev1.Taint) bool { return t.Key == "ours" }); !slices.Equal(got, []string{"a"}) {
		t.Errorf("tainted are %q, want a alone", got)
	}
}
