// Package resources is prerequisites.resources.
package resources

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
)

// placeholder in a selector stands for the node's name.
const placeholder = "{{node}}"

// Settings are resources of any kind whose condition must hold.
type Settings []Entry

// Entry is met when at least one object matches and every match has the condition.
type Entry struct {
	// APIVersion of the objects, for example cilium.io/v2.
	APIVersion string `json:"apiVersion" required:"as in cilium.io/v2"`
	// Kind of the objects, for example CiliumNode.
	Kind string `json:"kind" required:"as in CiliumNode" format:"kind"`
	// Namespace of the objects; empty for cluster-scoped kinds or all namespaces.
	Namespace string `json:"namespace,omitempty" format:"dns-label"`
	// Selector is a label selector in its string form; {{node}} is replaced by the node's name.
	Selector string `json:"selector,omitempty"`
	// Condition is the type of the condition in status.conditions.
	Condition string `json:"condition" required:"" format:"qualified-name"`
	// Status it must have. Default True.
	Status metav1.ConditionStatus `json:"status,omitempty" enum:"True False Unknown"`
}

// SetDefaults fills each entry's status.
func (s Settings) SetDefaults() {
	for i := range s {
		s[i].Status = cmp.Or(s[i].Status, metav1.ConditionTrue)
	}
}

// InDaemonSetMode says what to configure there instead.
func (Settings) InDaemonSetMode() string {
	return "use prerequisites.conditions to wait for a node condition"
}

// Validate reports what is not valid as an API version or as a selector.
func (e *Entry) Validate(p *field.Path) field.ErrorList {
	faults := validateVersion(p.Child("apiVersion"), e.APIVersion)
	example := forNode(e.Selector, "node")
	switch _, err := labels.Parse(example); {
	case strings.Contains(example, "{{") || strings.Contains(example, "}}"):
		faults = append(faults, field.Invalid(p.Child("selector"), e.Selector,
			placeholder+" is the only placeholder, and is written without spaces"))
	case err != nil:
		faults = append(faults, field.Invalid(p.Child("selector"), e.Selector, "is not a label selector: "+err.Error()))
	}
	return faults
}

func validateVersion(p *field.Path, version string) (faults field.ErrorList) {
	gv, err := schema.ParseGroupVersion(version)
	if err != nil || gv.Version == "" || strings.HasPrefix(version, "/") {
		return field.ErrorList{field.Invalid(p, version, "must be group/version, for example cilium.io/v2, or v1")}
	}
	messages := validation.IsDNS1035Label(gv.Version)
	if gv.Group != "" {
		messages = append(validation.IsDNS1123Subdomain(gv.Group), messages...)
	}
	for _, message := range messages {
		faults = append(faults, field.Invalid(p, version, message))
	}
	return faults
}

// Prerequisites are the conditions of resources.
func (s Settings) Prerequisites() (all []kind.Prerequisite) {
	for _, e := range s {
		r := resource{Entry: e, source: &kind.Source{
			Kind: schema.FromAPIVersionAndKind(e.APIVersion, e.Kind), Namespace: e.Namespace,
			Slim: kind.Slim(slim), Same: kind.Same(same),
			Why: "to wait for its condition. The chart uses the regular plural of the kind; add a rule for another plural to " +
				"`controller.extraRules`",
		}}
		r.source.Indexes = map[string]func(any) []string{kind.ByNode: nodesOf}
		if r.label, r.values = perNode(e.Selector); r.label != "" {
			r.source.Indexes = map[string]func(any) []string{labelled + r.label: func(o any) []string {
				if u, ok := o.(*unstructured.Unstructured); ok {
					if v, ok := u.GetLabels()[r.label]; ok {
						return []string{v}
					}
				}
				return nil
			}}
		}
		all = append(all, kind.Prerequisite{Name: e.name(), Sources: []*kind.Source{r.source}, Unmet: r.unmet})
	}
	return all
}

func (e *Entry) name() string {
	name := e.Kind
	if e.Namespace != "" {
		name = e.Namespace + "/" + name
	}
	if e.Selector != "" {
		name += " " + e.Selector
	}
	name += " " + e.Condition
	if e.Status != metav1.ConditionTrue {
		name += "=" + string(e.Status)
	}
	return name
}

// labelled begins the name of an index by a label.
const labelled = "label "

// nodesOf are the names of the nodes that an object may be about: its own name, as agents call the object of a node,
// and those of the nodes that own it.
func nodesOf(o any) []string {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	names := []string{u.GetName()}
	for _, owner := range u.GetOwnerReferences() {
		if !slices.Contains(names, owner.Name) {
			names = append(names, owner.Name)
		}
	}
	return names
}

// slim keeps labels, the nodes that own the object, and the conditions' statuses.
func slim(u *unstructured.Unstructured) any {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions") // of another form: counts as absent
	var conditions []any
	for _, c := range list {
		if m, ok := c.(map[string]any); ok {
			conditions = append(conditions, map[string]any{"type": m["type"], "status": m["status"]})
		}
	}
	slim := kind.Identity(u, map[string]any{"conditions": conditions})
	slim.SetLabels(u.GetLabels())
	notNode := func(o metav1.OwnerReference) bool { return o.Kind != "Node" }
	if owners := slices.DeleteFunc(u.GetOwnerReferences(), notNode); len(owners) > 0 {
		slim.SetOwnerReferences(owners)
	}
	return slim
}

// same ignores an agent's heartbeat, which changes neither a label, nor an owner, nor a condition's status.
func same(a, b *unstructured.Unstructured) bool {
	return maps.Equal(a.GetLabels(), b.GetLabels()) &&
		reflect.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences()) &&
		reflect.DeepEqual(a.Object["status"], b.Object["status"])
}

// resource is one entry.
type resource struct {
	Entry
	source *kind.Source

	// label has the name of an object's node, as one of values, which contain the placeholder. There is an index by it.
	// Empty when the selector asks for no such label.
	label  string
	values []string
}

// perNode finds the label by which a selector asks for the node's objects, and the values that it may have.
func perNode(selector string) (label string, values []string) {
	// Stands for the placeholder, which is no valid label value. It does not occur in the selector, nor begins as it
	// ends, so it is found again wherever it was put.
	mark := "xy"
	for strings.Contains(selector, mark) {
		mark = "x" + mark
	}
	parsed, err := labels.Parse(strings.ReplaceAll(selector, placeholder, mark))
	if err != nil {
		return "", nil // no node's name makes it valid, or only a shorter one: parsed again for each node
	}
	requirements, _ := parsed.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
		default:
			continue
		}
		asked := r.ValuesUnsorted()
		marked := func(v string) bool { return strings.Contains(v, mark) }
		if marked(r.Key()) || !slices.ContainsFunc(asked, marked) {
			continue
		}
		for _, v := range asked {
			values = append(values, strings.ReplaceAll(v, mark, placeholder))
		}
		return r.Key(), values
	}
	return "", nil
}

func forNode(text, nodeName string) string { return strings.ReplaceAll(text, placeholder, nodeName) }

// unmet: the condition must hold on every match, and there must be one.
func (r resource) unmet(n *corev1.Node, in kind.Cluster) kind.Unmet {
	text := forNode(r.Selector, n.Name)
	what := r.Kind
	if text != "" {
		what += " (" + text + ")"
	}
	return kind.Missing(fmt.Sprintf("%s %s to be %s", what, r.Condition, r.Status), r.missing(n, text, in))
}

func (r resource) missing(n *corev1.Node, text string, in kind.Cluster) string {
	selector, err := labels.Parse(text)
	if err != nil { // a label's value has at most 63 characters, and a node's name may have 253
		return "selector: " + err.Error()
	}
	violation := func(objects []any) string { return r.violation(objects, selector) }
	var own []any
	switch {
	case r.label != "":
		for _, v := range r.values {
			found, why := in.Find(r.source, labelled+r.label, forNode(v, n.Name))
			if why != "" {
				return why
			}
			own = append(own, found...)
		}
	case strings.Contains(r.Selector, placeholder):
		// As in node!={{node}}: other objects for each node, and hardly anybody's intention.
		found, why := in.Find(r.source, kind.All, "")
		if why != "" {
			return why
		}
		own = found
	default:
		result, why := in.Shared(r.source, r.name(), violation)
		if why == "" {
			own, why = in.Find(r.source, kind.ByNode, n.Name)
		}
		return cmp.Or(why, result, r.stale(n, own, selector, in))
	}
	return cmp.Or(violation(own), r.stale(n, own, selector, in))
}

// stale says which of a node's own objects does not count yet, the first in order of namespace and name.
func (r resource) stale(n *corev1.Node, own []any, selector labels.Selector, in kind.Cluster) (first string) {
	order := func(a, b any) int { return compare(a.(*unstructured.Unstructured), b.(*unstructured.Unstructured)) }
	for _, o := range slices.SortedFunc(slices.Values(own), order) {
		u := o.(*unstructured.Unstructured)
		if !selector.Matches(labels.Set(u.GetLabels())) {
			continue
		}
		why := in.Stale(n, kind.Object{ID: string(u.GetUID()), Created: u.GetCreationTimestamp(),
			Sign: u.GetResourceVersion()})
		earlier := func(o metav1.OwnerReference) bool { return kind.OfEarlierNode(n, o) }
		if slices.ContainsFunc(u.GetOwnerReferences(), earlier) {
			why = "belongs to an earlier node of this name"
		}
		if why != "" && first == "" {
			first = u.GetName() + " " + why
		}
	}
	return first
}

// violation says what is wrong with the first object in order of namespace and name; empty when nothing is.
func (r resource) violation(objects []any, selector labels.Selector) string {
	found := false
	var first *unstructured.Unstructured
	for _, o := range objects {
		u := o.(*unstructured.Unstructured)
		if !selector.Matches(labels.Set(u.GetLabels())) {
			continue
		}
		found = true
		if status(u, r.Condition) != r.Status && (first == nil || compare(u, first) < 0) {
			first = u
		}
	}
	switch {
	case !found:
		return "no such object"
	case first == nil:
		return ""
	}
	return fmt.Sprintf("%s says %s", first.GetName(), cmp.Or(status(first, r.Condition), "nothing"))
}

func compare(a, b *unstructured.Unstructured) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

func status(u *unstructured.Unstructured, condition string) metav1.ConditionStatus {
	// No copy: this is called for each of a node's objects.
	conditions, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "conditions")
	list, _ := conditions.([]any)
	for _, c := range list {
		if m, ok := c.(map[string]any); ok && m["type"] == condition {
			s, _ := m["status"].(string)
			return metav1.ConditionStatus(s)
		}
	}
	return ""
}
