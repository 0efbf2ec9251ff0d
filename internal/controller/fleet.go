package controller

import (
	"context"
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

	mu     sync.Mutex
	seeded bool
	nodes  map[string]*decide.NodeSummary // pointers, because a map allocates up to twice the entries that it holds
	list   []decide.NodeSummary           // nodes, sorted by name; nil when they changed
}

// NewFleet makes an empty one.
func NewFleet(v *View) *Fleet { return &Fleet{view: v, nodes: map[string]*decide.NodeSummary{}} }

// Observe records a node.
func (f *Fleet) Observe(in decide.Input) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observe(in)
}

func (f *Fleet) observe(in decide.Input) {
	m := decide.SummaryOf(in)
	if before := f.nodes[m.Name]; before == nil || *before != m {
		f.nodes[m.Name], f.list = &m, nil
	}
}

// Settled reports whether the node of that name and UID is verified, and remains so until it changes.
func (f *Fleet) Settled(name, uid string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.nodes[name]
	return m != nil && m.Settled && m.UID == uid
}

// Gone drops a node.
func (f *Fleet) Gone(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.nodes, name)
	f.list = nil
}

// Summaries lists the fleet. It must not be modified.
func (f *Fleet) Summaries(ctx context.Context) ([]decide.NodeSummary, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.seeded {
		// The events of the nodes that were there before us may still be on their way.
		nodes, err := nodecache.Each(ctx, f.view.Cache)
		if err != nil {
			return nil, err
		}
		for n := range nodes {
			f.observe(f.view.Observe(n))
		}
		f.seeded = true
	}
	if f.list == nil {
		f.list = make([]decide.NodeSummary, 0, len(f.nodes))
		for _, m := range f.nodes {
			f.list = append(f.list, *m)
		}
		slices.SortFunc(f.list, func(a, b decide.NodeSummary) int { return strings.Compare(a.Name, b.Name) })
	}
	return f.list, nil
}

// fleetPage is how many nodes are read at once, and so held in memory with 10 to 20 KiB each.
const fleetPage = 250

// ReadSummaries lists the fleet as the API server has it. A deletion cannot rely on the cache: if its watch lags in an
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
