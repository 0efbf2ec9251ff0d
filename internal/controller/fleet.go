package controller

import (
	"context"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// Fleet is what decisions need of all nodes, kept up to date by the events of each: reading five thousand nodes for every
// one that failed would take a core.
type Fleet struct {
	view *View

	mu      sync.Mutex
	seeded  bool
	members map[string]decide.Member
	list    []decide.Member // members, sorted by name; nil when they changed
}

// NewFleet makes the account.
func NewFleet(v *View) *Fleet { return &Fleet{view: v, members: map[string]decide.Member{}} }

// See accounts for a node.
func (f *Fleet) See(in decide.Input) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.see(in)
}

func (f *Fleet) see(in decide.Input) {
	if m := decide.MemberOf(in); f.members[m.Name] != m {
		f.members[m.Name], f.list = m, nil
	}
}

// Gone drops a node.
func (f *Fleet) Gone(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.members, name)
	f.list = nil
}

// Members lists the fleet. It must not be modified.
func (f *Fleet) Members(ctx context.Context) ([]decide.Member, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.seeded {
		// The events of the nodes that were there before us may still be on their way.
		var nodes corev1.NodeList
		if err := f.view.Cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		for i := range nodes.Items {
			f.see(f.view.Observe(&nodes.Items[i]))
		}
		f.seeded = true
	}
	if f.list == nil {
		f.list = make([]decide.Member, 0, len(f.members))
		for _, m := range f.members {
			f.list = append(f.list, m)
		}
		slices.SortFunc(f.list, func(a, b decide.Member) int { return strings.Compare(a.Name, b.Name) })
	}
	return f.list, nil
}

// fleetPage is how many nodes are read at once: so many of 10 to 20 KiB each are held in memory.
const fleetPage = 250

// ReadMembers lists the fleet as the API server has it. Before something is deleted the cache is not enough: where its watch lags in an
// outage, it shows as healthy what has failed meanwhile.
func (f *Fleet) ReadMembers(ctx context.Context, live client.Reader) ([]decide.Member, error) {
	var members []decide.Member
	err := Pages(ctx, live, fleetPage, func() *corev1.NodeList { return &corev1.NodeList{} }, func(page *corev1.NodeList, first bool) bool {
		if first {
			members = nil
		}
		for i := range page.Items {
			members = append(members, decide.MemberOf(f.view.Observe(&page.Items[i])))
		}
		return true
	})
	return members, err
}
