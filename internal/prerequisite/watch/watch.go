// Package watch watches what must hold before a node's first worker starts, and enqueues the nodes that wait for it.
package watch

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
)

// Clients are what the watches need.
type Clients struct {
	// Kubernetes reads objects of built-in kinds.
	Kubernetes kubernetes.Interface
	// Dynamic reads all others.
	Dynamic dynamic.Interface
	// Mapper finds the resource of a kind.
	Mapper meta.RESTMapper
}

// Watches watches what the prerequisites of a configuration, its profiles included, read, each source once.
type Watches struct {
	clients   Clients
	waiting   *waiting
	informers map[string]*informer // by the key of their source
	gating    []marks.Taint
	sections  []section
	evidence  kind.Evidence
}

// section is the prerequisites of nodeManagement or of a profile.
type section struct {
	of  config.Prerequisites
	all []kind.Prerequisite
}

// New prepares the watches; Start runs them.
func New(cfg *config.Config, c Clients) *Watches {
	w := &Watches{clients: c, waiting: newWaiting(), informers: map[string]*informer{}, gating: cfg.GatingTaints()}
	for _, v := range cfg.Variants() {
		w.sections = append(w.sections, section{of: v.Prerequisites, all: v.Prerequisites.All()})
	}
	for _, s := range w.sections {
		for _, p := range s.all {
			for _, source := range p.Sources {
				w.add(source)
			}
		}
	}
	return w
}

// add prepares the informer of a source.
func (w *Watches) add(s *kind.Source) {
	i := w.informers[s.Key()]
	if i == nil {
		i = newInformer(w.waiting, s)
		w.informers[s.Key()] = i
	}
	for name, values := range s.Indexes {
		i.indexers[name] = func(o any) ([]string, error) { return values(o), nil }
	}
}

// Events delivers the nodes that something changed for.
func (w *Watches) Events() <-chan event.GenericEvent { return w.waiting.out }

// NeedLeaderElection lets a standby replica keep its watches warm.
func (w *Watches) NeedLeaderElection() bool { return false }

// Start runs the watches until ctx is done.
func (w *Watches) Start(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { w.waiting.deliver(ctx) })
	for _, i := range w.informers {
		wg.Go(func() { i.runSource(ctx, w.clients) })
	}
	<-ctx.Done()
	wg.Wait()
	return nil
}

// Unmet lists what does not hold for the node, in the order of the configuration; empty when all does. Until then the
// node is enqueued by what it waits for. p is one of the configuration's.
func (w *Watches) Unmet(n *corev1.Node, p config.Prerequisites) []decide.Unmet {
	v := &view{Watches: w, node: n.Name, now: time.Now(), pending: map[dependency]struct{}{}}
	w.evidence.Look(n, marks.Observe(n, marks.Vocabulary{}).Record.BootID, v.now)
	waits := w.evaluate(n, p, v)
	w.waiting.keep(n.Name, v.pending)
	return waits
}

// Forget drops a node that is gone, or waits for nothing. Not before its record names its boot: after a reboot that is
// all that shows that reports may be from before.
func (w *Watches) Forget(name string) {
	w.waiting.keep(name, nil)
	w.evidence.Forget(name)
}

// evaluate returns what the node waits for. What two prerequisites ask for is listed once.
func (w *Watches) evaluate(n *corev1.Node, p config.Prerequisites, v *view) (waits []decide.Unmet) {
	i := slices.IndexFunc(w.sections, func(s section) bool {
		return reflect.DeepEqual(s.of, p) // of the same slices and maps, as nearly always: compared by their addresses
	})
	if i < 0 { // what nobody watches must not pass for met
		return []decide.Unmet{{Kind: "prerequisites", Name: "unknown",
			Message: "prerequisites that were not in the configuration at start"}}
	}
	for _, p := range w.sections[i].all {
		v.read, v.until = v.read[:0], time.Time{}
		unmet := p.Unmet(n, v)
		if unmet.Why == "" {
			continue
		}
		for _, d := range v.read {
			v.pending[d] = struct{}{}
		}
		same := func(w decide.Unmet) bool { return w.Kind == p.Kind && w.Name == p.Name && w.Message == unmet.Why }
		if i := slices.IndexFunc(waits, same); i < 0 {
			waits = append(waits, decide.Unmet{Kind: p.Kind, Name: p.Name, Objects: unmet.Of, Message: unmet.Why,
				Remedy: unmet.Remedy, Hint: unmet.Hint, Until: v.until})
		} else if waits[i].Remedy == "" {
			waits[i].Remedy = unmet.Remedy
		}
	}
	return waits
}

// view is the kind.Cluster of one evaluation. It records what is read, because only that can change the result.
type view struct {
	*Watches
	node    string
	now     time.Time
	until   time.Time               // when what is stale counts, for the prerequisite at hand; zero if nothing is
	read    []dependency            // by the prerequisite at hand
	pending map[dependency]struct{} // read by those that do not hold
}

// Find implements kind.Cluster.
func (v *view) Find(s *kind.Source, index, value string) (objects []any, why string) {
	i := v.record(s, index, value)
	all, why := i.objects()
	if why != "" {
		return nil, why
	}
	if index == kind.All {
		return all.List(), ""
	}
	objects, err := all.ByIndex(index, value)
	if err != nil { // there is no such index
		return nil, err.Error()
	}
	return objects, ""
}

// Shared implements kind.Cluster.
func (v *view) Shared(s *kind.Source, name string, of func(objects []any) string) (result, why string) {
	i := v.record(s, kind.All, "")
	all, why := i.objects()
	if why != "" {
		return "", why
	}
	return i.shared(name, all, of), ""
}

// Stale implements kind.Cluster.
func (v *view) Stale(n *corev1.Node, o kind.Object) string {
	why, until := v.evidence.Stale(n, o, v.now)
	if !until.IsZero() {
		v.until = until
	}
	return why
}

// Gating implements kind.Cluster.
func (v *view) Gating() []marks.Taint { return v.gating }

// record has the node wait for what is read: before it is read, or a change that comes just after would enqueue nobody.
func (v *view) record(s *kind.Source, index, value string) *informer {
	i := v.informers[s.Key()]
	for _, d := range []dependency{{i, state, ""}, {i, index, value}} {
		v.waiting.add(v.node, d)
		v.read = append(v.read, d)
	}
	return i
}
