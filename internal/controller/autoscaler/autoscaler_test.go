package autoscaler

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/nodepool"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

var gate = marks.Taint{Key: "node-ready/unverified", Effect: corev1.TaintEffectNoSchedule}

// cluster has NodePools and nodes.
type cluster struct {
	client.Reader // nil: nothing else is read
	pools         []unstructured.Unstructured
	nodes         []*corev1.Node
	err           error // of a list of NodePools
	lists         int   // of NodePools
}

func (c *cluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	c.lists++
	list.(*unstructured.UnstructuredList).Items = c.pools
	return c.err
}

func (c *cluster) unsettled(context.Context, map[string]bool) (iter.Seq[*corev1.Node], int, error) {
	return slices.Values(c.nodes), 0, nil
}

// pool makes a NodePool with these startupTaints.
func pool(name string, startup ...marks.Taint) unstructured.Unstructured {
	p := unstructured.Unstructured{}
	p.SetGroupVersionKind(nodepool.Kind)
	p.SetName(name)
	list := []any{}
	for _, t := range startup {
		list = append(list, map[string]any{"key": t.Key, "effect": string(t.Effect)})
	}
	_ = unstructured.SetNestedSlice(p.Object, list, "spec", "template", "spec", "startupTaints")
	return p
}

// gated makes a node of a pool that carries the gating taint.
func gated(pool string) *corev1.Node {
	n := &corev1.Node{}
	n.Labels = map[string]string{owner.LabelNodePool: pool}
	n.Spec.Taints = []corev1.Taint{{Key: gate.Key, Effect: gate.Effect}}
	return n
}

// poller makes a Poller, and returns it with the pools that events were emitted on, and the last count.
func poller(c *cluster) (p *Poller, emitted *[]string, counted *int) {
	emitted, counted = new([]string), new(-1)
	return &Poller{Gating: []marks.Taint{gate}, Live: c, Unsettled: c.unsettled, Every: time.Minute,
		Emit:  func(p decide.NodePool, _ decide.Event) { *emitted = append(*emitted, p.Name) },
		Count: func(unknown []decide.UnknownTaint) { *counted = len(unknown) },
	}, emitted, counted
}

// A taint that no NodePool lists is reported on all of them, once, and again if it was listed meanwhile. No node carries
// it, so no node is launched in vain, and the metric counts nothing.
func TestUnlistedTaintIsReportedOnce(t *testing.T) {
	c := &cluster{pools: []unstructured.Unstructured{pool("a"), pool("b")}}
	p, emitted, counted := poller(c)
	look := func(events []string, count int) {
		t.Helper()
		*emitted = nil
		if err := p.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(*emitted, events) || *counted != count {
			t.Errorf("events on %q, %d unknown taints; want %q, %d", *emitted, *counted, events, count)
		}
	}
	look([]string{"a", "b"}, 0)
	look(nil, 0)
	c.pools = []unstructured.Unstructured{pool("a", gate), pool("b", gate)}
	look(nil, 0)
	c.pools = []unstructured.Unstructured{pool("a"), pool("b")}
	look([]string{"a", "b"}, 0)
	c.nodes = []*corev1.Node{gated("b"), gated("")}
	look([]string{"b"}, 1)
}

// A NodePool that does not list the taint is reported only if its own nodes carry it.
func TestPoolIsReportedForItsOwnNodes(t *testing.T) {
	c := &cluster{pools: []unstructured.Unstructured{pool("a", gate), pool("b"), pool("c")}, nodes: []*corev1.Node{gated("a"), gated("b")}}
	p, emitted, counted := poller(c)
	if err := p.look(t.Context()); err != nil || !slices.Equal(*emitted, []string{"b"}) || *counted != 1 {
		t.Errorf("events on %q, %d unknown taints (%v)", *emitted, *counted, err)
	}
}

// Without Karpenter's definitions there is nothing to report. Any other error leaves the metric as it is.
func TestNodePoolsThatCannotBeRead(t *testing.T) {
	absent := &cluster{err: &meta.NoKindMatchError{GroupKind: nodepool.Kind.GroupKind()}}
	if p, _, counted := poller(absent); p.look(t.Context()) != nil || *counted != 0 {
		t.Errorf("without Karpenter: %d unknown taints", *counted)
	}
	down := errors.New("no answer")
	if p, _, counted := poller(&cluster{err: down}); !errors.Is(p.look(t.Context()), down) || *counted != -1 {
		t.Errorf("without an answer: %d unknown taints", *counted)
	}
}

// Start looks at once, goes on after an error, and ends with its context.
func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{err: errors.New("no answer")}
		p, _, _ := poller(c)
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		if err := p.Start(ctx); err != nil || c.lists != 3 {
			t.Errorf("%d looks in 150 s, want one each minute from the start (%v)", c.lists, err)
		}
	})
}
