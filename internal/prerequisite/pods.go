package prerequisite

import (
	"context"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/verdict"
)

// Indexes of pods and of ControllerRevisions.
const (
	byNode  = "node"
	byOwner = "owner"
)

// podWatch watches the pods of one namespace and selector.
type podWatch struct {
	client          kubernetes.Interface
	namespace       string
	selector        labels.Selector
	pods, revisions *feed // revisions is nil unless currentRevision is asked for
}

// podsByNode indexes pods by the node that they are bound to.
var podsByNode = cache.Indexers{byNode: func(o any) ([]string, error) {
	if pod, ok := o.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}}

// needRevisions adds the watch of the namespace's ControllerRevisions: a DaemonSet's status does not name its current one.
func (w *podWatch) needRevisions(wakes *wakes) {
	if w.revisions != nil {
		return
	}
	w.revisions = newFeed(wakes, cache.Indexers{byOwner: func(o any) ([]string, error) {
		if r, ok := o.(*appsv1.ControllerRevision); ok {
			if c := metav1.GetControllerOf(r); c != nil {
				return []string{string(c.UID)}, nil
			}
		}
		return nil, nil
	}}, slimRevision)
}

func (w *podWatch) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		w.pods.run(ctx, coreinformers.NewFilteredPodInformer(w.client, w.namespace, 0, cache.Indexers{},
			func(o *metav1.ListOptions) { o.LabelSelector = w.selector.String() }), "list and watch pods")
	})
	if w.revisions != nil {
		wg.Go(func() {
			w.revisions.run(ctx, appsinformers.NewControllerRevisionInformer(w.client, w.namespace, 0, cache.Indexers{}),
				"list and watch controllerrevisions.apps")
		})
	}
}

// podRule is one entry of prerequisites.pods.
type podRule struct {
	*podWatch
	config.PodPrerequisite
}

func (w *Watches) podRule(p config.PodPrerequisite) (rule, error) {
	selector, err := metav1.LabelSelectorAsSelector(&p.Selector)
	if err != nil {
		return nil, fmt.Errorf("prerequisites.pods in namespace %s: selector: %w", p.Namespace, err)
	}
	watch := once(w, "pods "+verdict.PodsName(p), func() *podWatch {
		return &podWatch{client: w.clients.Kubernetes, namespace: p.Namespace, selector: selector, pods: newFeed(w.wakes, podsByNode, slimPod)}
	})
	if p.CurrentRevision {
		watch.needRevisions(w.wakes)
	}
	return podRule{watch, p}, nil
}

func (r podRule) describe() (kind, name string) {
	return verdict.KindPods, verdict.PodsName(r.PodPrerequisite)
}

func (r podRule) topics(nodeName string) []topic {
	topics := []topic{r.pods.topic(state, ""), r.pods.topic(byNode, nodeName)}
	if r.CurrentRevision {
		topics = append(topics, r.revisions.topic(state, ""), r.revisions.topic(anyObject, ""))
	}
	return topics
}

func (r podRule) unmet(n *corev1.Node) lack { return lack{why: r.missing(n)} }

// missing says what is missing on the node; empty when a pod fits.
func (r podRule) missing(n *corev1.Node) string {
	pods := r.pods.objects()
	if pods == nil {
		return verdict.NoPods(r.PodPrerequisite, r.pods.why())
	}
	var revisions cache.Indexer
	if r.CurrentRevision {
		if revisions = r.revisions.objects(); revisions == nil {
			return verdict.NoPods(r.PodPrerequisite, r.revisions.why())
		}
	}
	return verdict.Pods(r.PodPrerequisite, indexed[*corev1.Pod](pods, byNode, n.Name), func(uid string) []*appsv1.ControllerRevision {
		return indexed[*appsv1.ControllerRevision](revisions, byOwner, uid)
	})
}

// indexed is what an index of ours has under a value.
func indexed[T any](objects cache.Indexer, index, value string) []T {
	found, _ := objects.ByIndex(index, value) // fails only for an index that is not there
	out := make([]T, 0, len(found))
	for _, o := range found {
		out = append(out, o.(T))
	}
	return out
}

func slimPod(o any) (any, error) {
	if p, ok := o.(*corev1.Pod); ok {
		p.ManagedFields = nil
		p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName}
		p.Status = corev1.PodStatus{Phase: p.Status.Phase, Conditions: p.Status.Conditions}
	}
	return o, nil
}

func slimRevision(o any) (any, error) {
	if r, ok := o.(*appsv1.ControllerRevision); ok {
		r.ManagedFields, r.Data.Raw = nil, nil
	}
	return o, nil
}
