// Package prerequisite watches what must hold before a node's first worker starts, and wakes the nodes that wait for it.
package prerequisite

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
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

// Watches holds one watch per distinct pod or resource prerequisite of the configuration, its profiles included.
type Watches struct {
	pods      map[string]*podWatch      // by podKey
	resources map[string]*resourceWatch // by resourceKey
	rules     map[config.ResourcePrerequisite]*resourceRule
	wakes     *wakes
}

// rule is a prerequisite that is met by other objects than the node.
type rule interface {
	// describe returns the Kind and Name of its decide.Wait.
	describe() (kind, name string)
	// topics are those whose changes may change what unmet returns.
	topics(nodeName string) []topic
	// unmet says what is missing for the node; empty when nothing is.
	unmet(nodeName string) string
}

// New prepares the watches; Start runs them.
func New(cfg *config.Config, c Clients) (*Watches, error) {
	w := &Watches{pods: map[string]*podWatch{}, resources: map[string]*resourceWatch{}, rules: map[config.ResourcePrerequisite]*resourceRule{}, wakes: newWakes()}
	all := []config.Prerequisites{cfg.NodeManagement.Prerequisites}
	for _, p := range cfg.Profiles {
		if p.Prerequisites != nil {
			all = append(all, *p.Prerequisites)
		}
	}
	for _, p := range all {
		for _, pod := range p.Pods {
			key := podKey(pod)
			if w.pods[key] == nil {
				watch, err := newPodWatch(pod, c.Kubernetes, w.wakes)
				if err != nil {
					return nil, err
				}
				w.pods[key] = watch
			}
			if pod.CurrentRevision {
				w.pods[key].needRevisions(w.wakes)
			}
		}
		for _, r := range p.Resources {
			key := resourceKey(r)
			if w.resources[key] == nil {
				w.resources[key] = newResourceWatch(r, c, w.wakes)
			}
			if w.rules[r] == nil {
				w.rules[r] = newResourceRule(r, w.resources[key])
			}
		}
	}
	return w, nil
}

// Events delivers the nodes that something changed for.
func (w *Watches) Events() <-chan event.GenericEvent { return w.wakes.out }

// NeedLeaderElection lets a standby replica keep its watches warm.
func (w *Watches) NeedLeaderElection() bool { return false }

// Start runs the watches until ctx is done.
func (w *Watches) Start(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { w.wakes.deliver(ctx) })
	for _, p := range w.pods {
		wg.Go(func() { p.run(ctx) })
	}
	for _, r := range w.resources {
		wg.Go(func() { r.run(ctx) })
	}
	<-ctx.Done()
	wg.Wait()
	return nil
}

// Unmet lists what does not hold for the node, in the order of the configuration; empty when all does. Until then the
// node is woken by what it waits for.
func (w *Watches) Unmet(n *corev1.Node, p config.Prerequisites) []decide.Wait {
	rules := w.rulesOf(p)
	w.wakes.await(n.Name, topicsOf(rules, n)) // before evaluating, or a change that comes just after would wake nobody
	waits, pending := evaluate(rules, n)
	w.wakes.await(n.Name, topicsOf(pending, n))
	return append(unmetConditions(n, p), waits...)
}

// Evaluate lists what Unmet does and changes nothing of what wakes the node, so that any node may be asked about.
func (w *Watches) Evaluate(n *corev1.Node, p config.Prerequisites) []decide.Wait {
	waits, _ := evaluate(w.rulesOf(p), n)
	return append(unmetConditions(n, p), waits...)
}

func (w *Watches) rulesOf(p config.Prerequisites) []rule {
	rules := make([]rule, 0, len(p.Pods)+len(p.Resources))
	for _, pod := range p.Pods {
		rules = append(rules, podRule{w.pods[podKey(pod)], pod})
	}
	for _, r := range p.Resources {
		rules = append(rules, w.rules[r])
	}
	return rules
}

func topicsOf(rules []rule, n *corev1.Node) []topic {
	var topics []topic
	for _, r := range rules {
		topics = append(topics, r.topics(n.Name)...)
	}
	return topics
}

// evaluate returns what the node waits for, and the rules that say so.
func evaluate(rules []rule, n *corev1.Node) (waits []decide.Wait, pending []rule) {
	for _, r := range rules {
		if why := r.unmet(n.Name); why != "" {
			kind, name := r.describe()
			waits = append(waits, decide.Wait{Kind: kind, Name: name, Why: why})
			pending = append(pending, r)
		}
	}
	return waits, pending
}

// Forget drops a node that is gone.
func (w *Watches) Forget(name string) { w.wakes.await(name, nil) }

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
