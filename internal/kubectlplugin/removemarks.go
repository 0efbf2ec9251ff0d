package kubectlplugin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// bootstrapPrefix begins the annotations of nodes that have passed a bootstrap-only rule, whose UID follows.
const bootstrapPrefix = marks.RuleTaintPrefix + "bootstrap-completed-"

// ownMarks is which marks are removed from nodes.
type ownMarks struct {
	// vocabulary has the gating taints.
	vocabulary          marks.Vocabulary
	labels, annotations []string
	// rules are the UIDs of the NodeReadinessRules that exist.
	rules map[string]bool
}

// removeMarks removes every mark of ours from the nodes that the command line names, else from all.
func removeMarks(ctx context.Context, v *invocation) error {
	if err := v.refuseBesideController(ctx); err != nil {
		return err
	}
	own, err := v.ownMarks(ctx)
	if err != nil {
		return err
	}
	listed := map[string]*corev1.Node{}
	if len(v.args) == 0 {
		err := each(ctx, v.cluster.client.CoreV1().Nodes().List, "", func(n *corev1.Node) { listed[n.Name] = n })
		if err != nil {
			return err
		}
		v.args = slices.Sorted(maps.Keys(listed))
	}
	err = v.forEachNode(func(name string) (string, error) {
		var removed []string
		n := listed[name]
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
			if n == nil {
				if n, err = v.cluster.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
					return err
				}
			}
			done, err := v.removeMarksOf(ctx, n, own)
			removed, n = append(removed, done...), nil
			return err
		})
		if listed[name] != nil && apierrors.IsNotFound(err) {
			return "", nil // it went meanwhile, with its marks
		}
		if err != nil || len(removed) == 0 {
			return "", err
		}
		return map[bool]string{false: "removed ", true: "would remove "}[v.dryRun] + strings.Join(removed, ", "), nil
	})
	if err == nil && v.text() && v.out.Len() == 0 {
		fmt.Fprintln(&v.out, "No marks found.")
	}
	return err
}

// refuseBesideController returns an error if a controller runs that would write the marks again.
func (v *invocation) refuseBesideController(ctx context.Context) error {
	if v.force || v.dryRun {
		return nil
	}
	apps, options := v.cluster.client.AppsV1(), metav1.ListOptions{LabelSelector: controllersSelector()}
	deployments, err := apps.Deployments(metav1.NamespaceAll).List(ctx, options)
	if err != nil {
		return err
	}
	daemonSets, err := apps.DaemonSets(metav1.NamespaceAll).List(ctx, options)
	if err != nil {
		return err
	}
	var running []string
	for _, d := range deployments.Items {
		if ptr.Deref(d.Spec.Replicas, 1) > 0 || d.Status.Replicas > 0 {
			running = append(running, "Deployment "+d.Namespace+"/"+d.Name)
		}
	}
	for _, d := range daemonSets.Items {
		running = append(running, "DaemonSet "+d.Namespace+"/"+d.Name)
	}
	if len(running) == 0 {
		return nil
	}
	return fmt.Errorf("a controller still runs and would write the marks again (%s): remove it with helm uninstall, or "+
		"set --force", strings.Join(running, ", "))
}

// ownMarks is what the configuration and the flags name, and what has fixed names.
func (v *invocation) ownMarks(ctx context.Context) (ownMarks, error) {
	vocabulary := v.cluster.config.Vocabulary()
	own := ownMarks{
		vocabulary: vocabulary, labels: []string{config.DefaultLabelKey, vocabulary.Verified.Key, v.verifiedLabel},
		annotations: []string{marks.AnnotationRecord, marks.AnnotationRules, marks.AnnotationReleased,
			marks.AnnotationVerifyRequested, marks.AnnotationVerifyCompleted, marks.AnnotationVerifyResult,
			vocabulary.Completed},
		rules: map[string]bool{},
	}
	own.vocabulary.Gating = slices.Clone(vocabulary.Gating)
	for _, text := range v.gatingTaints {
		key, effect, _ := strings.Cut(text, ":")
		taint := marks.Taint{Key: key, Effect: corev1.TaintEffect(effect)}
		if !slices.Contains(effects, taint.Effect) || key == "" {
			return own, usageErrorf("--taint must be KEY:EFFECT, for example example.com/unverified:NoSchedule, not %q", text)
		}
		own.vocabulary.Gating = append(own.vocabulary.Gating, marks.WithFallbacks([]marks.Taint{taint})...)
	}
	err := each(ctx, v.cluster.dynamic.Resource(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource)).List, "",
		func(o *unstructured.Unstructured) { own.rules[string(o.GetUID())] = true })
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return own, err
}

// effects are those that a taint can have.
var effects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
	corev1.TaintEffectNoExecute}

// removeMarksOf removes our marks from the node as it was read, and returns them. If anybody has written the node
// since, the error is a conflict.
func (v *invocation) removeMarksOf(ctx context.Context, n *corev1.Node, own ownMarks) (removed []string, err error) {
	labels, annotations := map[string]any{}, map[string]any{} // null removes a key (RFC 7386)
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		if slices.Contains(own.labels, key) {
			labels[key], removed = nil, append(removed, "label "+key)
		}
	}
	taints, owned := []corev1.Taint{}, slices.Collect(maps.Values(marks.OwnedOn(n))) // taints must not be null
	for _, t := range n.Spec.Taints {
		id := marks.TaintIDOf(t)
		_, _, ofRule := marks.CutRulePrefix(t.Key)
		if own.vocabulary.Gates(t) || t.Key == config.DefaultTaintKey || ofRule && slices.Contains(owned, id) {
			removed = append(removed, "taint "+id.String())
		} else {
			taints = append(taints, t)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(n.Annotations)) {
		if slices.Contains(own.annotations, key) || own.ofGoneRule(n, key) {
			annotations[key], removed = nil, append(removed, "annotation "+key)
		}
	}
	if len(removed) > 0 && !v.dryRun {
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion, "labels": labels,
				"annotations": annotations},
			"spec": map[string]any{"taints": taints},
		})
		if err != nil {
			return nil, err
		}
		if n, err = v.patchNode(ctx, n.Name, patch); err != nil {
			return nil, err
		}
	}
	var conditions []corev1.NodeConditionType
	for _, c := range n.Status.Conditions {
		if c.Type == marks.ConditionType || c.Reason == marks.ReasonVerificationFailed {
			conditions = append(conditions, c.Type)
		}
	}
	if len(conditions) > 0 && !v.dryRun {
		_, err = v.cluster.client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType,
			marks.RemoveConditions(n, conditions), metav1.PatchOptions{FieldManager: fieldManager}, "status")
		if err != nil {
			return removed, err
		}
	}
	for _, c := range conditions {
		removed = append(removed, "condition "+string(c))
	}
	return removed, nil
}

// ofGoneRule reports whether the controller wrote the annotation for a bootstrap-only rule that is gone. The
// node-readiness-controller writes the same annotations, and reads ours while the rule is there.
func (o ownMarks) ofGoneRule(n *corev1.Node, key string) bool {
	uid, ok := strings.CutPrefix(key, bootstrapPrefix)
	return ok && !o.rules[uid] && slices.ContainsFunc(n.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == eventSource && f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(), `"f:`+key+`"`)
	})
}
