package controller

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Slots reserves the creation of worker pods and bounds how many of them occupy nodes at once. It counts the pods in
// the cache, and the reservations that the cache does not show yet. A pod on a lost node holds no slot, nor does a pod
// that should have ended or been deleted. Such a pod may never end, and must not delay others. Nodes without a slot are
// enqueued when there is one, in the order in which they asked.
type Slots struct {
	limit int // 0: none
	view  *View

	mu        sync.Mutex
	waiting   []string // names of nodes
	isWaiting map[string]bool
	overdue   []decide.SlotHolder // those of the last count
}

// NewSlots makes Slots with reconciliation.maxConcurrentVerifications as the limit.
func NewSlots(v *View) *Slots {
	return &Slots{limit: int(v.Config.Reconciliation.MaxConcurrentVerifications), view: v, isWaiting: map[string]bool{}}
}

// Take reserves a slot for a pod that is created for a node. GiveBack must follow. A node that gets no slot is
// remembered for Next. The error is ErrVanished while the cache does not have the node's last pod yet.
func (s *Slots) Take(ctx context.Context, node string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, err := s.view.reserved.held(node, s.view.synced())
	if held || err != nil {
		return held, err
	}
	if s.limit > 0 {
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
	s.view.reserved.set(node, reservation{})
	return true, nil
}

// free is the number of slots that are left. s.mu must be held.
func (s *Slots) free(ctx context.Context) (int, error) {
	synced := s.view.synced() // before the list, which then shows what is not pending any more
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
	return free - s.view.reserved.pending(synced, shown), nil
}

// PastEnd are the pods that held a slot when slots were last counted, although they should have ended before. They are
// sorted by when they lose the slot.
func (s *Slots) PastEnd() []decide.SlotHolder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.overdue)
}

// Creating turns a node's slot into that of the pod that is about to be created. It returns false for a probe if
// another one of its group is being created.
func (s *Slots) Creating(node string, pod *corev1.Pod) bool {
	group := pod.Labels[workerpod.LabelProbeGroup]
	s.mu.Lock()
	defer s.mu.Unlock()
	if group != "" && s.view.reserved.probing(group, node, s.view.synced()) || !s.view.Tracker.asks(pod) {
		return false
	}
	s.view.reserved.set(node, reservation{name: pod.Name, group: group, nodeUID: pod.Labels[workerpod.LabelNodeUID]})
	return true
}

// Created keeps the reservation until the cache has the pod, which must be as the API server returned it and must not
// be modified later.
func (s *Slots) Created(node string, pod *corev1.Pod) {
	s.view.Tracker.Created(pod)
	s.view.reserved.set(node, reservation{name: pod.Name, group: pod.Labels[workerpod.LabelProbeGroup],
		nodeUID: pod.Labels[workerpod.LabelNodeUID], pod: pod})
}

// Answered records the API server's answer to the request that Creating announced, with the pod as it was returned.
func (s *Slots) Answered(node string, pod *corev1.Pod, err error) {
	s.view.Tracker.answered(pod, err)
	if err == nil {
		s.Created(node, pod)
	}
}

// GiveBack ends a node's reservation, unless a pod was created for it.
func (s *Slots) GiveBack(node string) { s.view.reserved.giveBack(node) }

// Forget drops a node that is gone, or that no longer waits.
func (s *Slots) Forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view.reserved.drop(node)
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

// reservations are the worker pods that this process is about to create, and created pods that the cache may not hold
// yet. There is at most one for each node, because the next pod waits until the store has the last one. The zero value
// is ready for use.
type reservations struct {
	mu sync.Mutex
	of map[string]reservation // by the node on whose behalf the pod is created
}

type reservation struct {
	// name is the pod's name, group is the group of a probe, and nodeUID is the UID of the node that the pod runs on. All
	// are empty until the pod is about to be created.
	name, group, nodeUID string
	pod                  *corev1.Pod // as the API server has it; nil before it answered
}

// pending reports whether a store that is complete up to the version synced may lack the pod. If the versions cannot be
// compared, the pod is not pending. Its name then keeps it from being created twice.
func (r reservation) pending(synced string) bool {
	return r.pod == nil || newer(r.pod.ResourceVersion, synced)
}

func (r *reservations) set(node string, to reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]reservation{}
	}
	r.of[node] = to
}

// held reports whether the node has a slot for a pod that is not created yet.
func (r *reservations) held(node, synced string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	have, ok := r.of[node]
	if ok && have.pod != nil && have.pending(synced) {
		return false, ErrVanished
	}
	return ok && have.pod == nil, nil
}

func (r *reservations) giveBack(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[node].pod == nil {
		delete(r.of, node)
	}
}

func (r *reservations) drop(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, node)
}

// pending counts the pods that the cache does not hold yet. shown are the names of the pods that it holds.
func (r *reservations) pending(synced string, shown map[string]bool) (count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, have := range r.of {
		if have.pending(synced) && !shown[have.name] {
			count++
		}
	}
	return count
}

// probing reports whether a probe of the group is being created on behalf of another node.
func (r *reservations) probing(group, node, synced string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for on, have := range r.of {
		if on != node && have.group == group && have.pending(synced) {
			return true
		}
	}
	return false
}

// settle ends the reservations for pods on a node once the store has reached the version of their creation. The store
// is complete up to the version synced, and listed has the UIDs of the node's pods in it. The result gone has the pods
// that have already left the store again. The error is ErrVanished while a creation is pending.
func (r *reservations) settle(nodeUID, synced string, listed map[types.UID]bool) (gone []*corev1.Pod, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for on, have := range r.of {
		switch {
		case have.nodeUID != nodeUID:
		case have.pod != nil && listed[have.pod.UID]:
			delete(r.of, on)
		case have.pending(synced):
			err = ErrVanished
		default:
			delete(r.of, on)
			gone = append(gone, have.pod)
		}
	}
	return gone, err
}

// holds reports whether a store that is complete up to the version synced contains the write with the version.
func holds(synced, version string) bool {
	order, err := resourceversion.CompareResourceVersion(synced, version)
	return err == nil && order >= 0
}

// newer reports whether version a is newer than b. It is false if they cannot be compared.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
