// Package pods is prerequisites.pods.
package pods

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
)

// Settings are pods, one of which must be ready on the node.
type Settings []Entry

// Entry is met by a pod on the node that matches, is not terminating and is ready.
type Entry struct {
	// Namespace of the pod.
	Namespace string `json:"namespace" required:"name it: whoever may annotate its pods decides" format:"dns-label"`
	// Selector matches the pod's labels; it must not be empty.
	Selector metav1.LabelSelector `json:"selector" required:"select the pods; an empty selector would be met by any pod"`
	// CurrentRevision also requires that the pod has its DaemonSet's current revision. Default false.
	CurrentRevision bool `json:"currentRevision,omitempty"`
	// ReadyAnnotation is an annotation of a ready pod, as key=value, or a key alone for the value "true". Default none:
	// the pod is ready if its condition Ready is True.
	ReadyAnnotation string `json:"readyAnnotation,omitempty"`
	// ReadyBy is what counts with a readyAnnotation: any (the annotation or the condition Ready), annotation (only that)
	// or both. Default any.
	ReadyBy string `json:"readyBy,omitempty" enum:"any annotation both"`
}

// The signs that make a pod ready.
const (
	ReadyByAny        = "any"
	ReadyByAnnotation = "annotation"
	ReadyByBoth       = "both"
)

// SetDefaults says what makes a pod ready that has a readyAnnotation.
func (s Settings) SetDefaults() {
	for i := range s {
		if s[i].ReadyAnnotation != "" {
			s[i].ReadyBy = cmp.Or(s[i].ReadyBy, ReadyByAny)
		}
	}
}

// Validate reports what is not valid as a selector or as an annotation.
func (e *Entry) Validate(p *field.Path) field.ErrorList {
	options := metavalidation.LabelSelectorValidationOptions{}
	faults := metavalidation.ValidateLabelSelector(&e.Selector, options, p.Child("selector"))
	if e.ReadyAnnotation == "" {
		if e.ReadyBy != "" {
			faults = append(faults, field.Invalid(p.Child("readyBy"), e.ReadyBy,
				"needs a readyAnnotation; without one, only the condition Ready is read"))
		}
		return faults
	}
	at := p.Child("readyAnnotation")
	key, value := e.annotation()
	for _, message := range validation.IsQualifiedName(strings.ToLower(key)) {
		faults = append(faults, field.Invalid(at, e.ReadyAnnotation, message))
	}
	if value == "" {
		faults = append(faults, field.Invalid(at, e.ReadyAnnotation,
			"must be key=value, or a key alone for the value true"))
	}
	return faults
}

// annotation splits ReadyAnnotation. The key is empty where there is none.
func (e *Entry) annotation() (key, value string) {
	key, value, found := strings.Cut(e.ReadyAnnotation, "=")
	if !found {
		value = "true"
	}
	return key, value
}

// byOwner is the index of ControllerRevisions by the UID of their DaemonSet.
const byOwner = "owner"

func slimPod(p *corev1.Pod) any {
	p.ManagedFields = nil
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName}
	p.Status = corev1.PodStatus{Phase: p.Status.Phase, Conditions: p.Status.Conditions}
	return p
}

// revisions are the ControllerRevisions of a namespace: a DaemonSet's status does not name its current one.
func revisions(namespace string) *kind.Source {
	return &kind.Source{
		Kind: appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), Namespace: namespace,
		Object: &appsv1.ControllerRevision{},
		Indexes: kind.Index(byOwner, func(r *appsv1.ControllerRevision) string {
			if c := metav1.GetControllerOfNoCopy(r); c != nil {
				return string(c.UID)
			}
			return ""
		}),
		Slim: kind.Slim(func(r *appsv1.ControllerRevision) any {
			r.ManagedFields, r.Data.Raw = nil, nil
			return r
		}),
		Why: "which revision is current",
	}
}

// Prerequisites are the pods.
func (s Settings) Prerequisites() (all []kind.Prerequisite) {
	for _, e := range s {
		selector := metav1.FormatLabelSelector(&e.Selector)
		pods := &kind.Source{
			Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: e.Namespace, Labels: selector,
			NodeField: "spec.nodeName", Object: &corev1.Pod{},
			Indexes: kind.Index(kind.ByNode, func(p *corev1.Pod) string { return p.Spec.NodeName }), Slim: kind.Slim(slimPod),
			Why: "to wait for them. The namespace must exist when the chart is installed",
		}
		what := fmt.Sprintf("a pod %s in namespace %s", selector, e.Namespace)
		read := []*kind.Source{pods}
		if e.CurrentRevision {
			read = append(read, revisions(e.Namespace))
		}
		unmet := func(n *corev1.Node, in kind.Cluster) kind.Unmet {
			found, why := in.Find(pods, kind.ByNode, n.Name)
			if why == "" {
				why = e.missing(found, in, n, func(uid string) ([]any, string) { return in.Find(read[1], byOwner, uid) })
			}
			return kind.Missing(what, why)
		}
		all = append(all, kind.Prerequisite{Name: e.Namespace + "/" + selector, Sources: read, Unmet: unmet})
	}
	return all
}

// missing says what is missing of the pods that match on the node. revisions returns the ControllerRevisions of a
// DaemonSet by its UID.
func (e *Entry) missing(found []any, in kind.Cluster, n *corev1.Node, revisions func(uid string) ([]any, string),
) string {
	if e.CurrentRevision { // unknown revisions are the reason, whatever the pods are
		if _, why := revisions(""); why != "" {
			return why
		}
	}
	first := ""
	byName := func(a, b any) int { return cmp.Compare(a.(*corev1.Pod).Name, b.(*corev1.Pod).Name) }
	for _, o := range slices.SortedFunc(slices.Values(found), byName) { // so that the message does not vary with the order
		pod := o.(*corev1.Pod)
		sign := kind.ReadySince(pod).String()
		if key, _ := e.annotation(); key != "" {
			sign += pod.Annotations[key]
		}
		stale := in.Stale(n, kind.Object{ID: string(pod.UID), Created: pod.CreationTimestamp, Sign: sign})
		why := cmp.Or(e.notReady(pod, revisions), stale)
		if why == "" {
			return ""
		}
		first = cmp.Or(first, pod.Name+" "+why)
	}
	return cmp.Or(first, "there is none on the node")
}

// notReady says why a pod does not count yet.
func (e *Entry) notReady(pod *corev1.Pod, revisions func(uid string) ([]any, string)) string {
	if pod.DeletionTimestamp != nil {
		return "is terminating"
	}
	if signs := e.missingSigns(pod); len(signs) > 0 {
		return strings.Join(signs, " and ")
	}
	if e.CurrentRevision && !current(pod, revisions) {
		return "is not of its DaemonSet's current revision"
	}
	return ""
}

// missingSigns lists the signs of readiness that the pod lacks and needs.
func (e *Entry) missingSigns(pod *corev1.Pod) (missing []string) {
	key, value := e.annotation()
	annotated := key != ""
	if (!annotated || e.ReadyBy != ReadyByAnnotation) && !kind.PodReady(pod) {
		missing = append(missing, "is not Ready")
	}
	if have, ok := pod.Annotations[key]; annotated && (!ok || have != value) {
		missing = append(missing, fmt.Sprintf("does not carry annotation %s=%s", key, value))
	}
	if annotated && e.ReadyBy == ReadyByAny && len(missing) < 2 {
		return nil // it has one of the two
	}
	return missing
}

// current reports whether the pod is of its DaemonSet's newest ControllerRevision, the one that the DaemonSet
// controller itself compares with (k8s.io/kubernetes pkg/controller/daemon/update.go).
func current(pod *corev1.Pod, revisions func(uid string) ([]any, string)) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "DaemonSet" {
		return false
	}
	var newest *appsv1.ControllerRevision
	all, _ := revisions(string(owner.UID)) // known: they have been read
	for _, o := range all {
		if r := o.(*appsv1.ControllerRevision); newest == nil || r.Revision > newest.Revision {
			newest = r
		}
	}
	const hash = appsv1.DefaultDaemonSetUniqueLabelKey
	return newest != nil && newest.Labels[hash] == pod.Labels[hash]
}
