package marks

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Names of what NodeReadinessRules write on a Node.
const (
	// AnnotationRules holds, as JSON, which rule owns which taint: the rule's UID → key:effect. It is written in the patch
	// that adds or removes the taint.
	AnnotationRules = "node-ready/rules"
	// AnnotationReleased holds, as a JSON list, the UIDs of the continuous rules that have released the node. It is
	// written where rules.maxClosedPercent is set, which bounds how many of such nodes are closed again.
	AnnotationReleased = "node-ready/rules-released"
	// annotationBootstrap followed by a rule's UID is the annotation of a node that has passed the bootstrap-only rule.
	// Its value is {"rule-name":"<name>"}. Up to v0.3, the node-readiness-controller wrote the rule's name instead of the
	// UID, and any value of that annotation counts, too, but not for a rule that was created later under the name.
	annotationBootstrap = "readiness.k8s.io/bootstrap-completed-"
)

// TaintID tells taints of one node apart: key and effect. The API server refuses two taints that agree in both.
type TaintID struct {
	Key    string
	Effect corev1.TaintEffect
}

// ID is the taint's.
func (t Taint) ID() TaintID { return TaintID{t.Key, t.Effect} }

// TaintIDOf is that of a node's taint.
func TaintIDOf(t corev1.Taint) TaintID { return TaintID{t.Key, t.Effect} }

// String is key:effect.
func (i TaintID) String() string { return i.Key + ":" + string(i.Effect) }

func parseTaintID(s string) (TaintID, bool) {
	key, effect, ok := strings.Cut(s, ":")
	return TaintID{key, corev1.TaintEffect(effect)}, ok && key != "" && effect != ""
}

// Owned is which rule, by its UID, owns which taint of a node.
type Owned map[string]TaintID

// OwnedOn reads AnnotationRules. An unreadable annotation owns nothing, so no taint is removed because of it.
func OwnedOn(n *corev1.Node) Owned {
	raw, ok := n.Annotations[AnnotationRules]
	if !ok {
		return nil
	}
	var written map[string]string
	if json.Unmarshal([]byte(raw), &written) != nil {
		return nil
	}
	owned := Owned{}
	for uid, taint := range written {
		if id, ok := parseTaintID(taint); ok {
			owned[uid] = id
		}
	}
	return owned
}

// Encode renders the account for AnnotationRules, with sorted keys.
func (o Owned) Encode() string {
	written := make(map[string]string, len(o))
	for uid, id := range o {
		written[uid] = id.String()
	}
	return encode(written)
}

func encode[T []string | map[string]string](strings T) string {
	b, err := json.Marshal(strings)
	if err != nil {
		panic(err) // strings only
	}
	return string(b)
}

// ReleasedOn reads AnnotationReleased. What cannot be read names no rule.
func ReleasedOn(n *corev1.Node) []string {
	var uids []string
	if json.Unmarshal([]byte(n.Annotations[AnnotationReleased]), &uids) != nil {
		return nil
	}
	return uids
}

// BootstrapCompleted reports whether the node has passed the bootstrap-only rule, which was created at the given time.
func BootstrapCompleted(n *corev1.Node, uid, name string, created time.Time) bool {
	byName := annotationBootstrap + name
	return hasKey(n.Annotations, annotationBootstrap+uid) ||
		hasKey(n.Annotations, byName) && !writtenAt(n, byName).Before(created)
}

// writtenAt is when an annotation was last written; zero if nobody knows.
func writtenAt(n *corev1.Node, key string) time.Time {
	_, at := lastWrite(n.ManagedFields, annotationPath(key))
	return at
}

func annotationPath(key string) []string { return []string{"metadata", "annotations", key} }

// CompletionTimes are the entries of managedFields that BootstrapCompleted reads, and no others: one for each
// annotation that names a rule. Most nodes have none.
func CompletionTimes(n *corev1.Node) (entries []metav1.ManagedFieldsEntry) {
	for _, key := range slices.Sorted(maps.Keys(n.Annotations)) {
		name, ok := strings.CutPrefix(key, annotationBootstrap)
		if at := writtenAt(n, key); ok && uuid.Validate(name) != nil && !at.IsZero() {
			fields := fmt.Sprintf(`{"f:metadata":{"f:annotations":{%q:{}}}}`, "f:"+key)
			entries = append(entries, metav1.ManagedFieldsEntry{Time: ptr.To(metav1.NewTime(at)),
				FieldsV1: metav1.NewFieldsV1(fields)})
		}
	}
	return entries
}

// The prefixes of the keys of rules' taints.
const (
	// RuleTaintPrefix is that of rules alone. Karpenter takes such a taint for a start-up taint.
	RuleTaintPrefix = "readiness.k8s.io/"
	// RuleAutoscalerPrefix is that by which Cluster Autoscaler knows a start-up taint. Other programs have taints with it,
	// too.
	RuleAutoscalerPrefix = "startup-taint.cluster-autoscaler.kubernetes.io/"
)

// CutRulePrefix returns the prefix of a key that may be that of a rule's taint, and what follows it.
func CutRulePrefix(key string) (prefix, name string, ok bool) {
	for _, prefix := range []string{RuleTaintPrefix, RuleAutoscalerPrefix} {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			return prefix, name, true
		}
	}
	return "", "", false
}

// HasRuleTaint reports whether the node carries a taint of a rule. Its key has the prefix that only rules have. With
// the prefix that other programs use too, AnnotationRules must name the taint. A gating taint is no rule's, whatever
// its prefix.
func HasRuleTaint(n *corev1.Node, v Vocabulary) bool {
	owned := slices.Collect(maps.Values(OwnedOn(n)))
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		prefix, _, ok := CutRulePrefix(t.Key)
		return ok && !v.Gates(t) && (prefix == RuleTaintPrefix || slices.Contains(owned, TaintIDOf(t)))
	})
}

// RuleChange is what rules change on a node. It is written in one patch with all else that changes on it.
type RuleChange struct {
	// Add are taints that are missing, Remove those that go.
	Add    []Taint
	Remove []TaintID
	// Owned is the account of who owns what; nil leaves the annotation as it is, an empty one removes it.
	Owned Owned
	// Completed are the bootstrap-only rules that the node has passed: names by UID.
	Completed map[string]string
	// Released are the UIDs of the continuous rules that have released the node; nil leaves the annotation as it is.
	Released []string
}

// Empty reports whether nothing changes.
func (c RuleChange) Empty() bool {
	return len(c.Add) == 0 && len(c.Remove) == 0 && c.Owned == nil && len(c.Completed) == 0 && c.Released == nil
}

// annotations are the annotations that the change sets. A value of nil removes an annotation.
func (c RuleChange) annotations() map[string]any {
	set := map[string]any{}
	switch {
	case c.Owned == nil:
	case len(c.Owned) == 0:
		set[AnnotationRules] = nil
	default:
		set[AnnotationRules] = c.Owned.Encode()
	}
	for _, uid := range slices.Sorted(maps.Keys(c.Completed)) {
		set[annotationBootstrap+uid] = encode(map[string]string{"rule-name": c.Completed[uid]})
	}
	if c.Released != nil {
		set[AnnotationReleased] = encode(c.Released)
	}
	return set
}

// taints are the node's taints after the change.
func (c RuleChange) taints(have []corev1.Taint) []corev1.Taint {
	removed := func(t corev1.Taint) bool { return slices.Contains(c.Remove, TaintIDOf(t)) }
	return with(slices.DeleteFunc(slices.Clone(have), removed), c.Add)
}
