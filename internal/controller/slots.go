package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Slots bounds how many of our pods occupy nodes at once. It counts those that the watch has shown, and adds those that
// were created and not seen yet (Tracker.Unseen). A pod on a lost node, or one that should have ended, holds no slot:
// others need not wait for what may never end. Nodes without a slot are woken when there is one, first come first
// served.
type Slots struct {
	limit int // 0: none
	view  *View

	mu        sync.Mutex
	seeded    bool
	occupying map[string]occupant // by the name of the pod
	reserved  map[string]bool     // by node, until the slot is given back
	waiting   []string            // names of nodes
	isWaiting map[string]bool
}

// occupant is a pod that occupies a node.
type occupant struct {
	node    string
	overdue time.Time // when it should have ended; zero for one that is not terminating
}

// NewSlots makes the account, with reconciliation.maxConcurrentVerifications as its limit.
func NewSlots(v *View) *Slots {
	return &Slots{limit: int(v.Config.Reconciliation.MaxConcurrentVerifications), view: v,
		occupying: map[string]occupant{}, reserved: map[string]bool{}, isWaiting: map[string]bool{}}
}

// Take reserves a slot for a pod that is made on a node's behalf; GiveBack must follow once that is being created, or is not to be. A
// node that gets none is remembered for Next.
func (s *Slots) Take(ctx context.Context, node string) (bool, error) {
	if s.limit <= 0 {
		return true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.seed(ctx); err != nil {
		return false, err
	}
	if s.reserved[node] || s.free() > 0 {
		s.reserved[node] = true
		delete(s.isWaiting, node)
		return true, nil
	}
	if !s.isWaiting[node] {
		s.isWaiting[node] = true
		s.waiting = append(s.waiting, node)
	}
	return false, nil
}

// seed counts the pods of before our time, whose events may still be on their way.
func (s *Slots) seed(ctx context.Context) error {
	if s.seeded {
		return nil
	}
	var list corev1.PodList
	if err := s.view.Cache.List(ctx, &list, client.InNamespace(s.view.Builder.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range list.Items {
		p := &list.Items[i]
		if !s.view.Ours(p) {
			continue
		}
		o := s.view.Tracker.observe(p)
		if !o.Occupies {
			continue
		}
		s.occupying[o.Name] = occupant{o.Node, o.EndsBy()}
		n := &corev1.Node{}
		if err := s.view.Cache.Get(ctx, client.ObjectKey{Name: o.Node}, n); err == nil {
			s.view.Observe(n) // whether it is lost
		} else if !apierrors.IsNotFound(err) {
			return err
		}
	}
	s.seeded = true
	return nil
}

// free is how many slots there are. s.mu must be held.
func (s *Slots) free() int {
	free, now := s.limit-len(s.reserved), s.view.Tracker.Now()
	for _, o := range s.occupying {
		if (o.overdue.IsZero() || now.Before(o.overdue)) && !s.view.Tracker.Lost(o.node) {
			free--
		}
	}
	for pod := range s.view.Tracker.Unseen() {
		if _, shown := s.occupying[pod]; !shown {
			free--
		}
	}
	return free
}

// GiveBack ends a node's reservation.
func (s *Slots) GiveBack(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reserved, node)
}

// SeePod accounts for what the watch has shown of one of our pods.
func (s *Slots) SeePod(o workerpod.Observation) {
	if s.limit <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Occupies {
		s.occupying[o.Name] = occupant{o.Node, o.EndsBy()}
	} else {
		delete(s.occupying, o.Name)
	}
}

// PodGone drops a pod.
func (s *Slots) PodGone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.occupying, name)
}

// Forget drops a node that is gone, or that waits no longer.
func (s *Slots) Forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reserved, node)
	delete(s.isWaiting, node)
}

// Next returns the nodes to look at again: as many as there are free slots. A node that no longer wants one leaves it to
// the next call.
func (s *Slots) Next() []string {
	if s.limit <= 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for free := s.free(); len(s.waiting) > 0 && len(names) < free; {
		name := s.waiting[0]
		s.waiting = s.waiting[1:]
		if s.isWaiting[name] {
			delete(s.isWaiting, name)
			names = append(names, name)
		}
	}
	return names
}
