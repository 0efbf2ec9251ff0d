package prerequisite

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
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

func podKey(p config.PodPrerequisite) string {
	return p.Namespace + "/" + metav1.FormatLabelSelector(&p.Selector)
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
	watch := once(w, "pods "+podKey(p), func() *podWatch {
		return &podWatch{client: w.clients.Kubernetes, namespace: p.Namespace, selector: selector, pods: newFeed(w.wakes, podsByNode, slimPod)}
	})
	if p.CurrentRevision {
		watch.needRevisions(w.wakes)
	}
	return podRule{watch, p}, nil
}

func (r podRule) describe() (kind, name string) { return "pods", podKey(r.PodPrerequisite) }

func (r podRule) topics(nodeName string) []topic {
	topics := []topic{r.pods.topic(state, ""), r.pods.topic(byNode, nodeName)}
	if r.CurrentRevision {
		topics = append(topics, r.revisions.topic(state, ""), r.revisions.topic(anyObject, ""))
	}
	return topics
}

// unmet says what is missing on the node; empty when a pod fits.
func (r podRule) unmet(n *corev1.Node) string {
	why := r.missing(n.Name)
	if why == "" {
		return ""
	}
	return fmt.Sprintf("a pod %s in namespace %s (%s)", metav1.FormatLabelSelector(&r.Selector), r.Namespace, why)
}

func (r podRule) missing(nodeName string) string {
	pods := r.pods.objects()
	if pods == nil {
		return r.pods.why()
	}
	var revisions cache.Indexer
	if r.CurrentRevision {
		if revisions = r.revisions.objects(); revisions == nil {
			return r.revisions.why()
		}
	}
	found, err := pods.ByIndex(byNode, nodeName)
	if err != nil {
		return err.Error()
	}
	// By name, as the index has no order and the message must not vary.
	slices.SortFunc(found, func(a, b any) int { return cmp.Compare(a.(*corev1.Pod).Name, b.(*corev1.Pod).Name) })
	first := "there is none on the node"
	for i, o := range found {
		why := r.fault(o.(*corev1.Pod), revisions)
		if why == "" {
			return ""
		}
		if i == 0 {
			first = why
		}
	}
	return first
}

// fault says why a pod does not count yet; empty when it does.
func (r podRule) fault(pod *corev1.Pod, revisions cache.Indexer) string {
	switch {
	case pod.DeletionTimestamp != nil:
		return pod.Name + " is terminating"
	case len(r.unready(pod)) > 0:
		return pod.Name + " " + strings.Join(r.unready(pod), " and ")
	case r.CurrentRevision && !current(pod, revisions):
		return pod.Name + " is not of its DaemonSet's current revision"
	}
	return ""
}

// unready lists the signs of readiness that the pod lacks and needs.
func (r podRule) unready(pod *corev1.Pod) []string {
	key, value := r.Annotation()
	annotated := key != ""
	var lacks []string
	if (!annotated || r.ReadyBy != config.ReadyByAnnotation) && !podReady(pod) {
		lacks = append(lacks, "is not Ready")
	}
	if have, ok := pod.Annotations[key]; annotated && (!ok || have != value) {
		lacks = append(lacks, fmt.Sprintf("does not carry annotation %s=%s", key, value))
	}
	if annotated && r.ReadyBy == config.ReadyByAny && len(lacks) < 2 {
		return nil // it has one of the two
	}
	return lacks
}

// current reports whether the pod is of its DaemonSet's newest ControllerRevision, the one that the DaemonSet
// controller itself compares with (k8s.io/kubernetes pkg/controller/daemon/update.go).
func current(pod *corev1.Pod, revisions cache.Indexer) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "DaemonSet" {
		return false
	}
	owned, err := revisions.ByIndex(byOwner, string(owner.UID))
	if err != nil {
		return false
	}
	var newest *appsv1.ControllerRevision
	for _, o := range owned {
		if r := o.(*appsv1.ControllerRevision); newest == nil || r.Revision > newest.Revision {
			newest = r
		}
	}
	return newest != nil && newest.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
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
