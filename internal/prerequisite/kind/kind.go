// Package kind is what the kinds of prerequisites have in common: what one reads, and what it finds unmet. A kind
// reads nothing itself: a controller has the objects in its caches, and a DaemonSet's process reads those of its own
// node.
package kind

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// Settings are what the folder of a kind provides: the value of its key in the file. They may also have the methods of
// limits.Validator, and SetDefaults if entries have defaults. Those that are about more than the node's own objects,
// which is all that DaemonSet mode reads, have InDaemonSetMode, which says what to configure there instead.
type Settings interface {
	// Prerequisites lists what must hold, in the order of the file.
	Prerequisites() []Prerequisite
}

// Prerequisite is one thing that must hold before a node's first worker starts.
type Prerequisite struct {
	// Kind is its key in the file.
	Kind string
	// Name says which prerequisite of that kind: the same for every node, so that it can be a metric's label.
	Name string
	// Sources are what Unmet may read, besides the node.
	Sources []*Source
	// Unmet returns what is missing on a node. It depends only on the node and on what it reads.
	Unmet func(*corev1.Node, Cluster) Unmet
}

// Unmet is what is missing on a node. Why is empty if the prerequisite holds.
type Unmet struct {
	Why string
	// Remedy is what a person must change; empty if waiting may be enough.
	Remedy string
	// Hint is what a person must probably change if it lasts; empty for none.
	Hint string
	// Of are the objects that are missing, where the prerequisite is about all objects of a kind.
	Of []string
}

// Missing is what is unmet: what must hold, with why it does not. Without a reason it holds.
func Missing(what, why string) Unmet {
	if why == "" {
		return Unmet{}
	}
	return Unmet{Why: fmt.Sprintf("%s (%s)", what, why)}
}

// Cluster is what a prerequisite reads besides the node.
type Cluster interface {
	// Find returns the objects of a source that one of its indexes has under a value, or all of them for the index All.
	// Where they are not known, why says the reason.
	Find(s *Source, index, value string) (objects []any, why string)
	// Shared returns the result of a function of all objects of a source, which is the same for every node. It is called
	// once for each change of these objects; name tells several functions of a source apart.
	Shared(s *Source, name string, of func(objects []any) string) (result, why string)
	// Stale says why what an object reports about the node does not count yet; empty if it does. See Evidence.
	Stale(n *corev1.Node, o Object) (why string)
	// Gating lists the taints that gate nodes.
	Gating() []marks.Taint
}

// All is the index of all objects of a source.
const All = "*"

// ByNode is the usual name of the index of objects by the name of their node.
const ByNode = "node"

// Source is objects that a prerequisite reads.
type Source struct {
	Kind      schema.GroupVersionKind
	Namespace string // empty for all
	// Labels and Fields are selectors.
	Labels, Fields string
	// NodeField is the field that has the node's name; empty where there is none to select by.
	NodeField string
	// Object is an empty one, of a built-in kind that the table in package watch makes informers of. Without it the
	// objects are unstructured, of a kind whose definition may be installed later.
	Object runtime.Object
	// Optional is why an API server may not serve a built-in kind; empty if all do.
	Optional string
	// Indexes list the values under which an object is found.
	Indexes map[string]func(object any) []string
	// Slim drops what nobody reads. It may be called again for what it returned.
	Slim func(object any) any
	// Same reports whether an update changes nothing that Unmet reads.
	Same func(old, now any) bool
	// Why they are read, in the words of docs/design/security.md.
	Why string
	// Anywhere requests the right to read them in the whole cluster, because a Role needs its namespace, which may not
	// exist.
	Anywhere bool
}

// Key is the same for sources of the same objects, which are kept for the same reason and so in the same form.
func (s *Source) Key() string {
	return strings.Join([]string{s.Kind.String(), s.Namespace, s.Labels, s.Fields, s.Why}, "|")
}

// Resource is the kind's resource, by the regular rule for plurals.
func (s *Source) Resource() schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(s.Kind)
	return plural
}

// Index is Source.Indexes with one index, of objects of one type. An object with an empty value is not found by it.
func Index[T any](name string, value func(T) string) map[string]func(any) []string {
	return map[string]func(any) []string{name: func(o any) []string {
		x, ok := o.(T)
		if !ok || value(x) == "" {
			return nil
		}
		return []string{value(x)}
	}}
}

// Slim is a function for Source.Slim.
func Slim[T any](slim func(T) any) func(any) any {
	return func(o any) any {
		if x, ok := o.(T); ok {
			return slim(x)
		}
		return o
	}
}

// Same is a function for Source.Same.
func Same[T any](same func(old, now T) bool) func(old, now any) bool {
	return func(old, now any) bool {
		a, okA := old.(T)
		b, okB := now.(T)
		return okA && okB && same(a, b)
	}
}

// Each calls f with the key and the value of each field of a struct that holds settings.
func Each(table any, f func(key string, s Settings)) {
	v := reflect.ValueOf(table)
	for field, value := range v.Fields() {
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		f(key, value.Interface().(Settings))
	}
}

// Of lists the prerequisites of a struct that holds settings.
func Of(table any) (all []Prerequisite) {
	Each(table, func(key string, s Settings) {
		for _, p := range s.Prerequisites() {
			if p.Kind == "" {
				p.Kind = key
			}
			all = append(all, p)
		}
	})
	return all
}

// OfNode is a prerequisite of the objects of a source that the index ByNode has for the node. missing says what is
// missing of them, and what begins the message.
func OfNode(name, what string, s *Source, missing func(n *corev1.Node, own []any, in Cluster) string) Prerequisite {
	unmet := func(n *corev1.Node, c Cluster) Unmet {
		own, why := c.Find(s, ByNode, n.Name)
		if why == "" {
			why = missing(n, own, c)
		}
		return Missing(what, why)
	}
	return Prerequisite{Name: name, Sources: []*Source{s}, Unmet: unmet}
}

// OfEarlierNode reports whether the owner is a node of the same name with another UID: the garbage collector has not
// deleted the object yet.
func OfEarlierNode(n *corev1.Node, owner metav1.OwnerReference) bool {
	return owner.Kind == "Node" && owner.Name == n.Name && owner.UID != n.UID
}

// Duplicates reports the entries whose key an earlier one has; at is an entry's path. An empty key is none.
func Duplicates[T any](entries []T, key func(T) string, at func(i int) *field.Path) (faults field.ErrorList) {
	seen := map[string]bool{}
	for i, e := range entries {
		k := key(e)
		if seen[k] {
			faults = append(faults, field.Duplicate(at(i), k))
		}
		seen[k] = k != ""
	}
	return faults
}

// ReadySince is when the pod's condition Ready had its last transition, on its kubelet's clock; zero if it has none.
func ReadySince(pod *corev1.Pod) metav1.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime
		}
	}
	return metav1.Time{}
}

// PodReady reports whether the pod's condition Ready is True.
func PodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Identity is an object of which only its identity is left, with another status.
func Identity(u *unstructured.Unstructured, status map[string]any) *unstructured.Unstructured {
	slim := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	slim.SetGroupVersionKind(u.GroupVersionKind())
	slim.SetNamespace(u.GetNamespace())
	slim.SetName(u.GetName())
	slim.SetUID(u.GetUID())
	slim.SetResourceVersion(u.GetResourceVersion())
	slim.SetCreationTimestamp(u.GetCreationTimestamp())
	return slim
}
