package controller

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// Slots bounds how many worker pods occupy nodes at once. It counts the pods in the cache, and those that were asked
// for and that the cache does not show yet. It also counts the slots that are taken for a pod to come. A pod on a lost
// node holds no slot, nor does a pod that should have ended or been deleted. Such a pod may never end, and must not
// delay others. Nodes without a slot are enqueued when there is one, in the order in which they asked.
type Slots struct {
	limit int // 0: none
	view  *View

	mu        sync.Mutex
	taken     map[string]bool // by nodes, for pods that the API server is not asked for yet
	waiting   []string        // names of nodes
	isWaiting map[string]bool
	overdue   []decide.SlotHolder // those of the last count
}

// NewSlots makes Slots with reconciliation.maxConcurrentVerifications as the limit.
func NewSlots(v *View) *Slots {
	return &Slots{limit: int(v.Config.Reconciliation.MaxConcurrentVerifications), view: v,
		taken: map[string]bool{}, isWaiting: map[string]bool{}}
}

// Take takes a slot for a pod that is created for a node. GiveBack must follow. A node that gets no slot is remembered
// for Next.
func (s *Slots) Take(ctx context.Context, node string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit > 0 && !s.taken[node] {
		free, err := s.free(ctx)
		if err != nil {
			return false, err
		}
		if free <= 0 {
			if !s.isWaiting[node] {
				s.isWaiting[node] = true
				s.waiting = append(s.waiting, node)
			}
			return false, nil
		}
	}
	delete(s.isWaiting, node)
	s.taken[node] = true
	return true, nil
}

// free is the number of slots that are left. s.mu must be held.
func (s *Slots) free(ctx context.Context) (int, error) {
	unshown := s.view.Tracker.unshown() // before the list, which then shows what is not in it any more
	var list corev1.PodList
	if err := s.view.Cache.List(ctx, &list, client.InNamespace(s.view.Builder.Namespace),
		client.MatchingFields{indexOccupies: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	free, now, shown := s.limit, s.view.Tracker.Now(), map[string]bool{}
	s.overdue = nil
	for i := range list.Items {
		p := &list.Items[i]
		if !s.view.Ours(p) {
			continue
		}
		shown[p.Name] = true
		o := s.view.Tracker.observe(p)
		end := o.GoneBy()
		if !end.IsZero() && !now.Before(end) || s.view.Tracker.Lost(o.Node) {
			continue
		}
		free--
		if due := o.DueBy(); !due.IsZero() && !now.Before(due) {
			s.overdue = append(s.overdue, decide.SlotHolder{Pod: o.Name, Node: o.Node, Due: due, Until: end,
				Terminating: o.Terminating, Finalizers: slices.Clone(o.Finalizers), Refused: s.view.Tracker.EndRefused(o.Node)})
		}
	}
	slices.SortFunc(s.overdue, func(a, b decide.SlotHolder) int {
		return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.Pod, b.Pod))
	})
	for _, name := range unshown {
		if !shown[name] {
			free--
		}
	}
	return free - len(s.taken), nil
}

// PastEnd are the pods that held a slot when slots were last counted, although they should have ended before. They are
// sorted by when they lose the slot.
func (s *Slots) PastEnd() []decide.SlotHolder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.overdue)
}

// Asks turns a node's slot into that of the pod that the API server is about to be asked for. Tracker.Answered must
// follow. It returns false for a probe while another one of its group is in flight, or created and not shown.
func (s *Slots) Asks(node string, pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.view.Tracker.asks(pod) {
		return false
	}
	delete(s.taken, node)
	return true
}

// GiveBack ends a node's slot, unless the API server was asked for a pod since.
func (s *Slots) GiveBack(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken, node)
}

// Forget drops a node that is gone, or that no longer waits.
func (s *Slots) Forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken, node)
	delete(s.isWaiting, node)
}

// Next returns the nodes to reconcile again: as many as there are free slots. If a node no longer needs its slot, the
// next call assigns it.
func (s *Slots) Next(ctx context.Context) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return nil
	}
	free, err := s.free(ctx)
	if err != nil {
		return nil // the cache is gone with ctx
	}
	var names []string
	for len(s.waiting) > 0 && len(names) < free {
		name := s.waiting[0]
		s.waiting = s.waiting[1:]
		if s.isWaiting[name] {
			delete(s.isWaiting, name)
			names = append(names, name)
		}
	}
	return names
}
