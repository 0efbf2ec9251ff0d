package controller

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/apiread"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/nodecache"
)

// Fleet summarises all nodes for decisions. The events of each node keep it up to date, because reading five thousand
// nodes for each failure would take a core.
type Fleet struct {
	view *View

	mu        sync.Mutex
	seeded    bool
	nodes     map[string]*decide.NodeSummary // pointers: a map allocates up to twice the entries that it holds
	unsettled map[string]bool                // by name
	list      []decide.NodeSummary           // nodes, sorted by name; nil when one came or went
	changed   map[string]bool                // by name: not yet as they are in list
}

// NewFleet makes an empty one.
func NewFleet(v *View) *Fleet {
	return &Fleet{view: v, nodes: map[string]*decide.NodeSummary{}, unsettled: map[string]bool{},
		changed: map[string]bool{}}
}

// Observe records a node.
func (f *Fleet) Observe(in decide.Input) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observe(in)
}

func (f *Fleet) observe(in decide.Input) {
	m := decide.SummaryOf(in)
	if before := f.nodes[m.Name]; before == nil || *before != m {
		if before == nil {
			f.list = nil
		}
		f.nodes[m.Name], f.changed[m.Name] = &m, true
		if delete(f.unsettled, m.Name); !m.Settled {
			f.unsettled[m.Name] = true
		}
	}
}

// Unsettled yields the nodes that are not settled, and those that also names, sorted by name. settled counts the
// others: they are verified, and remain so until they change.
func (f *Fleet) Unsettled(ctx context.Context, also map[string]bool) (
	nodes iter.Seq[*corev1.Node], settled int, err error) {
	names, settled, err := f.unsettledNames(ctx, also)
	return func(yield func(*corev1.Node) bool) {
		for _, name := range names {
			n := &corev1.Node{}
			if err := f.view.Cache.Get(ctx, client.ObjectKey{Name: name}, n); err == nil && !yield(n) {
				return // an error: it is gone
			}
		}
	}, settled, err
}

func (f *Fleet) unsettledNames(ctx context.Context, also map[string]bool) (names []string, settled int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.seed(ctx); err != nil {
		return nil, 0, err
	}
	names = slices.Collect(maps.Keys(f.unsettled))
	for name := range also {
		if f.nodes[name] != nil && !f.unsettled[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, len(f.nodes) - len(names), nil
}

// Gone drops a node.
func (f *Fleet) Gone(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.nodes, name)
	delete(f.unsettled, name)
	f.list = nil
}

// Summaries lists the fleet. It must not be modified. In an outage each failure asks for it, so what changed is
// replaced in a copy, which is faster than to sort the fleet again.
func (f *Fleet) Summaries(ctx context.Context) ([]decide.NodeSummary, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.seed(ctx); err != nil {
		return nil, err
	}
	if f.list == nil {
		f.list = make([]decide.NodeSummary, 0, len(f.nodes))
		for _, m := range f.nodes {
			f.list = append(f.list, *m)
		}
		slices.SortFunc(f.list, func(a, b decide.NodeSummary) int { return strings.Compare(a.Name, b.Name) })
	} else if len(f.changed) > 0 {
		f.list = slices.Clone(f.list)
		for name := range f.changed {
			byName := func(m decide.NodeSummary, name string) int { return strings.Compare(m.Name, name) }
			if i, ok := slices.BinarySearchFunc(f.list, name, byName); ok {
				f.list[i] = *f.nodes[name]
			}
		}
	}
	clear(f.changed)
	return f.list, nil
}

// seed records the nodes that were there before this process led: their events may still be on their way.
func (f *Fleet) seed(ctx context.Context) error {
	if f.seeded {
		return nil
	}
	nodes, err := nodecache.Each(ctx, f.view.Cache)
	if err != nil {
		return err
	}
	for n := range nodes {
		f.observe(f.view.Observe(n))
	}
	f.seeded = true
	return nil
}

// fleetPage is how many nodes are read at once, and so held in memory with 10 to 20 KiB each.
const fleetPage = 250

// ReadSummaries lists the fleet as the API server has it. An action cannot rely on the cache: if its watch lags in an
// outage, it shows failed nodes as healthy.
func (f *Fleet) ReadSummaries(ctx context.Context, live client.Reader) ([]decide.NodeSummary, error) {
	var nodes []decide.NodeSummary
	empty := func() *corev1.NodeList { return &corev1.NodeList{} }
	err := apiread.Pages(ctx, live, fleetPage, empty, func(page *corev1.NodeList, first bool) bool {
		if first {
			nodes = nil
		}
		for i := range page.Items {
			nodes = append(nodes, decide.SummaryOf(f.view.Observe(&page.Items[i])))
		}
		return true
	})
	return nodes, err
}
