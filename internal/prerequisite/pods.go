package prerequisite

import (
	"context"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

const byNode = "node"

// podWatch watches the pods of one namespace and selector.
type podWatch struct {
	namespace       string
	pods, revisions cache.SharedIndexInformer // revisions is nil unless currentRevision is asked for
	trouble         trouble
}

func podKey(p config.PodPrerequisite) string {
	return p.Namespace + "/" + metav1.FormatLabelSelector(&p.Selector)
}

func newPodWatch(p config.PodPrerequisite, c kubernetes.Interface, owner *Watches) (*podWatch, error) {
	selector, err := metav1.LabelSelectorAsSelector(&p.Selector)
	if err != nil {
		return nil, fmt.Errorf("prerequisites.pods in namespace %s: selector: %w", p.Namespace, err)
	}
	w := &podWatch{namespace: p.Namespace}
	w.pods = informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace(p.Namespace), informers.WithTransform(slimPod),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector.String() })).Core().V1().Pods().Informer()
	if err := w.pods.AddIndexers(cache.Indexers{byNode: func(o any) ([]string, error) {
		return []string{o.(*corev1.Pod).Spec.NodeName}, nil
	}}); err != nil {
		return nil, err
	}
	wake := func(o any) {
		if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = d.Obj
		}
		if pod, ok := o.(*corev1.Pod); ok {
			owner.wakeNode(pod.Spec.NodeName)
		}
	}
	if err := w.watch(w.pods, "list and watch pods", wake); err != nil {
		return nil, err
	}
	if p.CurrentRevision {
		w.needRevisions(c, owner)
	}
	return w, nil
}

// needRevisions adds the watch of the namespace's ControllerRevisions: a DaemonSet's status does not name its current one.
func (w *podWatch) needRevisions(c kubernetes.Interface, owner *Watches) {
	if w.revisions != nil {
		return
	}
	w.revisions = informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace(w.namespace), informers.WithTransform(slimRevision)).Apps().V1().ControllerRevisions().Informer()
	_ = w.watch(w.revisions, "list and watch controllerrevisions.apps", func(any) { owner.wakeAll() }) // fails only on a stopped informer
}

func (w *podWatch) watch(i cache.SharedIndexInformer, request string, wake func(any)) error {
	if err := i.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { w.trouble.set(err, request) }); err != nil {
		return err
	}
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, o any) { wake(o) }, DeleteFunc: wake})
	return err
}

func (w *podWatch) start(ctx context.Context, wg *sync.WaitGroup, owner *Watches) {
	informers := []cache.SharedIndexInformer{w.pods}
	if w.revisions != nil {
		informers = append(informers, w.revisions)
	}
	for _, i := range informers {
		wg.Go(func() { i.RunWithContext(ctx) })
	}
	wg.Go(func() { owner.wakeOnSync(ctx, informers...) })
}

// unmet says what is missing on the node; empty when a pod fits.
func (w *podWatch) unmet(nodeName string, p config.PodPrerequisite) string {
	what := fmt.Sprintf("a pod %s in namespace %s", metav1.FormatLabelSelector(&p.Selector), p.Namespace)
	if !w.pods.HasSynced() || w.revisions != nil && !w.revisions.HasSynced() {
		return fmt.Sprintf("%s (%s)", what, &w.trouble)
	}
	objects, err := w.pods.GetIndexer().ByIndex(byNode, nodeName)
	if err != nil {
		return fmt.Sprintf("%s (%v)", what, err)
	}
	why := "there is none on the node"
	for _, o := range objects {
		if why = w.fault(o.(*corev1.Pod), p); why == "" {
			return ""
		}
	}
	return fmt.Sprintf("%s (%s)", what, why)
}

// fault says why a pod does not count yet; empty when it does.
func (w *podWatch) fault(pod *corev1.Pod, p config.PodPrerequisite) string {
	switch {
	case pod.DeletionTimestamp != nil:
		return pod.Name + " is terminating"
	case !podReady(pod):
		return pod.Name + " is not Ready"
	case p.ReadyAnnotation != "" && pod.Annotations[p.ReadyAnnotation] != "true":
		return fmt.Sprintf("%s does not carry annotation %s=true", pod.Name, p.ReadyAnnotation)
	case p.CurrentRevision && !w.current(pod):
		return pod.Name + " is not of its DaemonSet's current revision"
	}
	return ""
}

// current tells whether the pod is of its DaemonSet's newest ControllerRevision, the one that the DaemonSet
// controller itself compares with (k8s.io/kubernetes pkg/controller/daemon/update.go).
func (w *podWatch) current(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "DaemonSet" {
		return false
	}
	var newest *appsv1.ControllerRevision
	for _, o := range w.revisions.GetStore().List() {
		r := o.(*appsv1.ControllerRevision)
		if c := metav1.GetControllerOf(r); c != nil && c.UID == owner.UID && (newest == nil || r.Revision > newest.Revision) {
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
