// Package prerequisite watches what must hold before a node's first worker starts, and wakes the nodes that wait for it.
package prerequisite

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// Clients are what the watches need.
type Clients struct {
	// Kubernetes reads pods and ControllerRevisions.
	Kubernetes kubernetes.Interface
	// Dynamic reads resources.
	Dynamic dynamic.Interface
	// Mapper finds the resource of a kind.
	Mapper meta.RESTMapper
}

// Watches watches what the prerequisites of a configuration, its profiles included, need to be evaluated, each thing once.
type Watches struct {
	clients Clients
	wakes   *wakes
	watches map[string]watch // by what is watched
	gating  []marks.Taint
	sets    []ruleSet
}

// watch is something to be watched until ctx is done.
type watch interface {
	run(ctx context.Context)
}

// New prepares the watches; Start runs them.
func New(cfg *config.Config, c Clients) (*Watches, error) {
	w := &Watches{clients: c, wakes: newWakes(), watches: map[string]watch{}, gating: cfg.GatingTaints()}
	all := []config.Prerequisites{cfg.NodeManagement.Prerequisites}
	for _, p := range cfg.Profiles {
		if p.Prerequisites != nil {
			all = append(all, *p.Prerequisites)
		}
	}
	for _, p := range all {
		rules, err := w.compile(p)
		if err != nil {
			return nil, err
		}
		w.sets = append(w.sets, ruleSet{of: p, rules: rules})
	}
	return w, nil
}

// once returns the watch under a key, which the first call makes.
func once[T watch](w *Watches, key string, first func() T) T {
	if have, ok := w.watches[key].(T); ok {
		return have
	}
	made := first()
	w.watches[key] = made
	return made
}

// Events delivers the nodes that something changed for.
func (w *Watches) Events() <-chan event.GenericEvent { return w.wakes.out }

// NeedLeaderElection lets a standby replica keep its watches warm.
func (w *Watches) NeedLeaderElection() bool { return false }

// Start runs the watches until ctx is done.
func (w *Watches) Start(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { w.wakes.deliver(ctx) })
	for _, each := range w.watches {
		wg.Go(func() { each.run(ctx) })
	}
	<-ctx.Done()
	wg.Wait()
	return nil
}

// Unmet lists what does not hold for the node, in the order of the configuration; empty when all does. Until then the
// node is woken by what it waits for. p is one of the configuration's.
func (w *Watches) Unmet(n *corev1.Node, p config.Prerequisites) []decide.Unmet {
	rules := w.rulesOf(p)
	w.wakes.await(n.Name, topicsOf(rules, n)) // before evaluating, or a change that comes just after would wake nobody
	waits, pending := evaluate(rules, n)
	w.wakes.await(n.Name, topicsOf(pending, n))
	return waits
}

// Evaluate lists what Unmet does and changes nothing of what wakes the node, so that any node may be asked about.
func (w *Watches) Evaluate(n *corev1.Node, p config.Prerequisites) []decide.Unmet {
	waits, _ := evaluate(w.rulesOf(p), n)
	return waits
}

// Forget drops a node that is gone.
func (w *Watches) Forget(name string) { w.wakes.await(name, nil) }
