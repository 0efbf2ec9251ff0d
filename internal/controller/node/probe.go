package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// probe creates a control probe, one for all nodes of its group that fail together.
func (r *Reconciler) probe(ctx context.Context, d decision) error {
	p, now := d.plan.Probe, r.View.Sights.Now()
	pod := r.View.Builder.Probe(p.On, d.in.Profile, p.Subject, p.Group)
	if !r.probing.take(p.Group, pod.Name, now) {
		return nil // another node of the group has just asked for one
	}
	err := r.Pods.Create(ctx, pod)
	if err == nil {
		r.Slots.Created(d.in.Node.Name, pod.Name)
		log.FromContext(ctx).Info("control probe created", "pod", pod.Name, "on", p.On.Name)
		return nil
	}
	r.probing.seen(pod.Name)
	why := ""
	switch {
	case apierrors.IsAlreadyExists(err):
		have := &corev1.Pod{}
		if err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Pods.Namespace, Name: pod.Name}, have); err != nil {
			return client.IgnoreNotFound(err)
		}
		if workerpod.Ours(have, r.Pods.Namespace, p.On) {
			return nil // created a moment ago; its events will come
		}
		why = fmt.Sprintf("pod %s/%s exists and is not ours", have.Namespace, have.Name)
	case refused(err):
		why = "the API server did not take the probe: " + err.Error()
	default:
		return fmt.Errorf("create probe %s on node %s: %w", pod.Name, p.On.Name, err)
	}
	probes, err := r.View.Probes(ctx, p.Group)
	if err != nil {
		return err
	}
	d.ev.Probes, d.ev.ProbeRefused = &probes, why
	plan := decide.Next(d.in, d.ev, now)
	if plan.Need == decide.NeedOccupants {
		occupants := r.occupants(ctx, d.in.Node.Name)
		d.ev.Workloads = &occupants
		plan = decide.Next(d.in, d.ev, now)
	}
	if plan.Step != decide.StepRecord {
		return nil // another probe has come meanwhile
	}
	return r.record(ctx, d, plan)
}

// probing remembers the probe of each group that was created and is not in the cache yet.
type probing struct {
	mu   sync.Mutex
	pods map[string]unseen // by group
}

type unseen struct {
	name string
	at   time.Time
}

// unseenFor bounds how long a created probe may take to reach the cache. One that was deleted before it did never will.
const unseenFor = 15 * time.Second

func (p *probing) take(group, pod string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods == nil {
		p.pods = map[string]unseen{}
	}
	if u, ok := p.pods[group]; ok && now.Sub(u.at) <= unseenFor {
		return false
	}
	p.pods[group] = unseen{name: pod, at: now}
	return true
}

// seen drops a probe that the cache knows now, or that was not created.
func (p *probing) seen(pod string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for group, u := range p.pods {
		if u.name == pod {
			delete(p.pods, group)
		}
	}
}
