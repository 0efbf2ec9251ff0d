package nodecache

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// Nodes is the informer of Nodes: handlers get Nodes. A status that changes nothing that the cache keeps is passed to
// none. A handler must not keep a Node of the initial list: each fills the same object. Tens of thousands of new ones
// would keep the garbage collector busy while a new leader begins.
type Nodes struct {
	cache.Informer
	shared toolscache.SharedIndexInformer
	last   *atomic.Pointer[update]
}

// Of returns the informer of Nodes of a manager's cache, which New must have made. It does not wait for the API server.
func Of(ctx context.Context, c cache.Cache) (*Nodes, error) {
	i, err := c.GetInformer(ctx, &corev1.Node{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	n, ok := i.(*Nodes)
	if !ok {
		return nil, fmt.Errorf("the cache is a %T and its informer of Nodes a %T", c, i)
	}
	return n, nil
}

func wrap(i cache.Informer, last *atomic.Pointer[update]) (*Nodes, error) {
	shared, ok := i.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("the informer of Nodes is a %T and shows no store", i)
	}
	return &Nodes{Informer: i, shared: shared, last: last}, nil
}

// Names are the names of the Nodes of the cache.
func (i *Nodes) Names() []string { return i.shared.GetStore().ListKeys() }

// Tainted are the names of the Nodes of the cache that have a taint which matches.
func (i *Nodes) Tainted(match func(corev1.Taint) bool) (names []string) {
	for _, o := range i.shared.GetStore().List() {
		if p := o.(*packed); slices.ContainsFunc(p.taints, match) {
			names = append(names, p.name)
		}
	}
	return names
}

// AddEventHandler implements cache.Informer.
func (i *Nodes) AddEventHandler(h toolscache.ResourceEventHandler) (
	toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandler(i.unpacking(h))
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i *Nodes) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, period time.Duration) (
	toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithResyncPeriod(i.unpacking(h), period)
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i *Nodes) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (
	toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithOptions(i.unpacking(h), o)
}

// AddIndexers implements cache.Informer. There are none.
func (i *Nodes) AddIndexers(toolscache.Indexers) error {
	return fmt.Errorf("the cache has no indexes of Nodes")
}

// update is one that was unpacked. Every handler gets the same two Nodes, as from any informer, and must not modify
// them.
type update struct {
	old, now      *packed
	before, after *corev1.Node
}

// unpacking passes Nodes to the handler. last is what the informer's handlers unpacked last: they mostly handle the
// same update at about the same time.
type unpacking struct {
	to   toolscache.ResourceEventHandler
	last *atomic.Pointer[update]
	// listed is the Node of the initial list that the handler gets at the time.
	listed *corev1.Node
}

func (i *Nodes) unpacking(h toolscache.ResourceEventHandler) unpacking {
	return unpacking{to: h, last: i.last, listed: &corev1.Node{}}
}

func (u unpacking) OnAdd(o any, initial bool) {
	if !initial {
		u.to.OnAdd(unpack(o), initial)
		return
	}
	o.(*packed).fill(u.listed)
	u.to.OnAdd(u.listed, initial)
}

func (u unpacking) OnUpdate(old, now any) {
	before, after := old.(*packed), now.(*packed)
	if before.same(after) {
		return
	}
	last := u.last.Load()
	if last == nil || last.old != before || last.now != after {
		last = &update{old: before, now: after, before: before.node(), after: after.node()}
		u.last.Store(last)
	}
	u.to.OnUpdate(last.before, last.after)
}

func (u unpacking) OnDelete(o any) {
	if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		unknown.Obj = unpack(unknown.Obj)
		o = unknown
	}
	u.to.OnDelete(unpack(o))
}

func unpack(o any) any {
	if p, ok := o.(*packed); ok {
		return p.node()
	}
	return o
}
