package prerequisite

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// resourceRule is one entry of prerequisites.resources.
type resourceRule struct {
	config.ResourcePrerequisite
	watch *resourceWatch

	// label names the node of an object, by one of values, which contain the placeholder. Empty when the selector asks
	// for no such label.
	label  string
	values []string

	// The verdict of a selector that is the same for every node, and the count of changes it was reached at.
	mu      sync.Mutex
	reached bool
	at      uint64
	verdict string
}

func (w *Watches) resourceRule(r config.ResourcePrerequisite) *resourceRule {
	watch := once(w, "resources "+resourceKey(r), func() *resourceWatch { return newResourceWatch(r, w.clients, w.wakes) })
	rule := &resourceRule{ResourcePrerequisite: r, watch: watch}
	if rule.label, rule.values = perNode(r.Selector); rule.label != "" {
		watch.indexBy(rule.label)
	}
	return rule
}

// perNode finds the label by which a selector asks for the node's objects, and the values that it may have.
func perNode(selector string) (label string, values []string) {
	// Stands for the placeholder, which is no valid label value. It does not occur in the selector, nor begins as it
	// ends, so it is found again wherever it was put.
	mark := "xy"
	for strings.Contains(selector, mark) {
		mark = "x" + mark
	}
	parsed, err := labels.Parse(strings.ReplaceAll(selector, config.NodePlaceholder, mark))
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
		if strings.Contains(r.Key(), mark) || !slices.ContainsFunc(asked, func(v string) bool { return strings.Contains(v, mark) }) {
			continue
		}
		for _, v := range asked {
			values = append(values, strings.ReplaceAll(v, mark, config.NodePlaceholder))
		}
		return r.Key(), values
	}
	return "", nil
}

func forNode(text, nodeName string) string {
	return strings.ReplaceAll(text, config.NodePlaceholder, nodeName)
}

func (r *resourceRule) describe() (kind, name string) {
	name = r.Kind
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	if r.Selector != "" {
		name += " " + r.Selector
	}
	name += " " + r.Condition
	if r.Status != metav1.ConditionTrue {
		name += "=" + string(r.Status)
	}
	return "resources", name
}

func (r *resourceRule) topics(nodeName string) []topic {
	topics := []topic{r.watch.topic(state, "")}
	if r.label == "" {
		return append(topics, r.watch.topic(anyObject, ""))
	}
	for _, v := range r.values {
		topics = append(topics, r.watch.topic(r.label, forNode(v, nodeName)))
	}
	return topics
}

// unmet: the condition must hold on every match, and there must be one.
func (r *resourceRule) unmet(n *corev1.Node) lack {
	text := forNode(r.Selector, n.Name)
	why := r.missing(n.Name, text)
	switch {
	case why == "":
		return lack{}
	case text == "":
		return lack{why: fmt.Sprintf("%s %s to be %s (%s)", r.Kind, r.Condition, r.Status, why)}
	default:
		return lack{why: fmt.Sprintf("%s (%s) %s to be %s (%s)", r.Kind, text, r.Condition, r.Status, why)}
	}
}

func (r *resourceRule) missing(nodeName, text string) string {
	selector, err := labels.Parse(text)
	if err != nil { // a label's value has at most 63 characters, and a node's name may have 253
		return "selector: " + err.Error()
	}
	objects := r.watch.objects()
	if objects == nil {
		return r.watch.why()
	}
	switch {
	case r.label != "":
		var own []any
		for _, v := range r.values {
			found, err := objects.ByIndex(r.label, forNode(v, nodeName))
			if err != nil {
				return err.Error()
			}
			own = append(own, found...)
		}
		return r.fault(own, selector)
	case strings.Contains(r.Selector, config.NodePlaceholder):
		// As in node!={{node}}: other objects for each node, and hardly anybody's intention.
		return r.fault(objects.List(), selector)
	default:
		return r.shared(objects, selector)
	}
}

// shared evaluates once per change what is the same for every node.
func (r *resourceRule) shared(objects cache.Indexer, selector labels.Selector) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Read before the objects: a change in between makes the verdict outdated, and never a new count certify an old one.
	if at := r.watch.changes.Load(); !r.reached || r.at != at {
		r.reached, r.at, r.verdict = true, at, r.fault(objects.List(), selector)
	}
	return r.verdict
}

// fault says what is wrong with the first object in order of namespace and name; empty when nothing is.
func (r *resourceRule) fault(objects []any, selector labels.Selector) string {
	found := false
	var first *unstructured.Unstructured
	for _, o := range objects {
		u := o.(*unstructured.Unstructured)
		if !selector.Matches(labels.Set(u.GetLabels())) {
			continue
		}
		found = true
		if status(u, r.Condition) != r.Status && (first == nil || before(u, first)) {
			first = u
		}
	}
	switch {
	case !found:
		return "no such object"
	case first == nil:
		return ""
	}
	got := status(first, r.Condition)
	if got == "" {
		got = "nothing"
	}
	return fmt.Sprintf("%s says %s", first.GetName(), got)
}

func before(a, b *unstructured.Unstructured) bool {
	if a.GetNamespace() != b.GetNamespace() {
		return a.GetNamespace() < b.GetNamespace()
	}
	return a.GetName() < b.GetName()
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
