package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// nodeChanged takes a node's new state.
func (b *board) nodeChanged(n *corev1.Node) {
	f := marks.Observe(n, vocabulary)
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.RecordProblem != "" {
		b.line(n.Name, "demo", f.RecordProblem)
	}
	r := b.at(n.Name)
	r.facts = f
	if s := state(f); s == stateVerified || s == stateFailed {
		if !r.ended {
			r.ended, r.time = true, time.Since(b.from)
		}
	} else {
		r.ended = false
	}
	b.tell(r)
}

// at is a node's row, made where it is missing.
func (b *board) at(name string) *row {
	if b.rows[name] == nil {
		b.rows[name] = &row{name: name}
	}
	return b.rows[name]
}

// tell notes how a node stands, and writes it where there is no table, if it has changed.
func (b *board) tell(r *row) {
	if h := b.history[r.name]; len(h) == 0 || h[len(h)-1].state != r.state() {
		b.history[r.name] = append(h, change{max(0, time.Since(b.from)), r.state()})
	}
	if b.live && b.table {
		return
	}
	line := fmt.Sprintf("attempt %d", r.attempt())
	if check := failing(r.facts); check != "" && r.state() != stateVerified {
		line += ", failing check " + check
	}
	if now := r.state() + line; now != b.shown[r.name] {
		b.shown[r.name] = now
		b.line(r.name, r.state(), line)
	}
}

// podChanged takes a worker pod's new state; gone is true once it is deleted.
func (b *board) podChanged(p *corev1.Pod, gone bool) {
	o := workerpod.Observe(p)
	if o.Purpose != workerpod.PurposeVerify {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.at(o.Node)
	switch {
	case !gone:
		r.working = max(r.working, o.Attempt.Number)
	case r.working == o.Attempt.Number:
		r.working = 0
	}
	b.tell(r)
}

// eventSeen shows an event on a node once.
func (b *board) eventSeen(e *corev1.Event) {
	if e.InvolvedObject.Kind != "Node" || e.LastTimestamp.IsZero() && e.EventTime.IsZero() && e.FirstTimestamp.IsZero() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if count, ok := b.told[e.UID]; ok && count == e.Count {
		return
	}
	b.told[e.UID] = e.Count
	b.line(e.InvolvedObject.Name, e.Reason, e.Message)
}

// follow feeds the board from the API server until stop is called.
func follow(ctx context.Context, client kubernetes.Interface, b *board) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	factory := informers.NewSharedInformerFactory(client, 0)
	_, err = factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { b.nodeChanged(obj.(*corev1.Node)) },
		UpdateFunc: func(_, obj any) { b.nodeChanged(obj.(*corev1.Node)) },
	})
	if err != nil {
		return nil, err
	}
	_, err = factory.Core().V1().Events().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { b.eventSeen(obj.(*corev1.Event)) },
		UpdateFunc: func(_, obj any) { b.eventSeen(obj.(*corev1.Event)) },
	})
	if err != nil {
		return nil, err
	}
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { b.podChanged(obj.(*corev1.Pod), false) },
		UpdateFunc: func(_, obj any) { b.podChanged(obj.(*corev1.Pod), false) },
		DeleteFunc: func(obj any) {
			if p, ok := obj.(*corev1.Pod); ok {
				b.podChanged(p, true)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("list %v: %w", kind, context.Cause(ctx))
		}
	}
	return func() {
		cancel()
		factory.Shutdown()
	}, nil
}
