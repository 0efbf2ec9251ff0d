// Package prerequisite watches what must hold before a node's first worker starts, and wakes the nodes that wait for it.
package prerequisite

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// Clients are what the watches need.
type Clients struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	Mapper     meta.RESTMapper
}

// Watches holds one watch per distinct pod or resource prerequisite of the configuration, its profiles included.
type Watches struct {
	pods      map[string]*podWatch
	resources map[string]*resourceWatch
	wake      chan event.GenericEvent

	mu      sync.Mutex
	waiting map[string]bool // nodes told to wait, which any change may concern; a hint, nothing is lost with it
}

// New prepares the watches; Start runs them.
func New(cfg *config.Config, c Clients) (*Watches, error) {
	w := &Watches{pods: map[string]*podWatch{}, resources: map[string]*resourceWatch{}, wake: make(chan event.GenericEvent, 1024), waiting: map[string]bool{}}
	all := []config.Prerequisites{cfg.NodeManagement.Prerequisites}
	for _, p := range cfg.Profiles {
		if p.Prerequisites != nil {
			all = append(all, *p.Prerequisites)
		}
	}
	for _, p := range all {
		for _, pod := range p.Pods {
			if key := podKey(pod); w.pods[key] == nil {
				watch, err := newPodWatch(pod, c.Kubernetes, w)
				if err != nil {
					return nil, err
				}
				w.pods[key] = watch
			} else if pod.CurrentRevision {
				w.pods[key].needRevisions(c.Kubernetes, w)
			}
		}
		for _, r := range p.Resources {
			if key := resourceKey(r); w.resources[key] == nil {
				w.resources[key] = newResourceWatch(r, c, w)
			}
		}
	}
	return w, nil
}

// Events delivers the nodes that something changed for.
func (w *Watches) Events() chan event.GenericEvent { return w.wake }

// NeedLeaderElection lets a standby replica keep its watches warm.
func (w *Watches) NeedLeaderElection() bool { return false }

// Start runs the watches until ctx is done.
func (w *Watches) Start(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, p := range w.pods {
		p.start(ctx, &wg, w)
	}
	for _, r := range w.resources {
		wg.Go(func() { r.run(ctx) })
	}
	<-ctx.Done()
	wg.Wait()
	return nil
}

// Unmet lists what does not hold for the node, in the order of the configuration; empty when all does.
func (w *Watches) Unmet(n *corev1.Node, p config.Prerequisites) []decide.Wait {
	unmet := unmetConditions(n, p)
	for _, pod := range p.Pods {
		if why := w.pods[podKey(pod)].unmet(n.Name, pod); why != "" {
			unmet = append(unmet, decide.Wait{Kind: "pods", Name: podKey(pod), Why: why})
		}
	}
	for _, r := range p.Resources {
		if why := w.resources[resourceKey(r)].unmet(n.Name, r); why != "" {
			unmet = append(unmet, decide.Wait{Kind: "resources", Name: resourceName(r), Why: why})
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(unmet) > 0 {
		w.waiting[n.Name] = true
	} else {
		delete(w.waiting, n.Name)
	}
	return unmet
}

// Forget drops a node that is gone.
func (w *Watches) Forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, name)
}

func unmetConditions(n *corev1.Node, p config.Prerequisites) []decide.Wait {
	var waits []decide.Wait
	if p.NodeReady && !hasCondition(n, corev1.NodeReady, corev1.ConditionTrue) {
		waits = append(waits, decide.Wait{Kind: "nodeReady", Name: "Ready", Why: "the node's condition Ready to be True"})
	}
	for _, c := range p.Conditions {
		if !hasCondition(n, c.Type, c.Status) {
			waits = append(waits, decide.Wait{Kind: "conditions", Name: fmt.Sprintf("%s=%s", c.Type, c.Status),
				Why: fmt.Sprintf("the node's condition %s to be %s", c.Type, c.Status)})
		}
	}
	return waits
}

func hasCondition(n *corev1.Node, t corev1.NodeConditionType, status corev1.ConditionStatus) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == t {
			return c.Status == status
		}
	}
	return false
}

// wakeNode tells that something changed for one node, if it waits.
func (w *Watches) wakeNode(name string) {
	w.mu.Lock()
	_, ok := w.waiting[name]
	w.mu.Unlock()
	if ok {
		w.wake <- event.GenericEvent{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	}
}

// wakeAll tells it for every node that waits.
func (w *Watches) wakeAll() {
	w.mu.Lock()
	names := make([]string, 0, len(w.waiting))
	for name := range w.waiting {
		names = append(names, name)
	}
	w.mu.Unlock()
	for _, name := range names {
		w.wakeNode(name)
	}
}

// wakeOnSync tells waiting nodes that a watch has its first list, which may be empty and then is no event.
func (w *Watches) wakeOnSync(ctx context.Context, informers ...cache.SharedIndexInformer) {
	for _, i := range informers {
		if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
			return
		}
	}
	w.wakeAll()
}

// trouble remembers why a watch reads nothing, for those who wait for it.
type trouble struct {
	mu   sync.Mutex
	text string
}

// set remembers the error of a request; nil when it worked.
func (t *trouble) set(err error, request string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = ""
	if err != nil {
		t.text = phrase(err, request)
	}
}

func (t *trouble) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text == "" {
		return notReadYet
	}
	return t.text
}
