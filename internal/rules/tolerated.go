package rules

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// podInterval is the least time between two reads of the controller's own pod. Tolerations may be added to a pod.
const podInterval = time.Minute

// self is what is known of the controller's own pod.
type self struct {
	read time.Time
	pod  corev1.Pod
	// unknown says why the pod could not be read; empty if it was.
	unknown string
}

// tolerated is the condition that names a rule whose taint keeps the controller off a node. It is nil for a rule that
// adds no taint, and where the controller runs in no pod.
func (r *Reconciler) tolerated(ctx context.Context, c *rule.Rule) (*metav1.Condition, error) {
	if r.Pod.Name == "" || c.Invalid != "" {
		return nil, nil
	}
	if err := r.readSelf(ctx); err != nil {
		return nil, err
	}
	condition := &metav1.Condition{Type: v1alpha1.ConditionTolerated, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonTolerated}
	taint := corev1.Taint{Key: c.Taint.Key, Value: c.Taint.Value, Effect: c.Taint.Effect}
	switch {
	case taint.Effect == corev1.TaintEffectPreferNoSchedule:
		condition.Message = "the taint keeps no pod off a node"
	case r.self.unknown != "":
		condition.Status, condition.Reason = metav1.ConditionUnknown, v1alpha1.ReasonPodUnreadable
		condition.Message = "the controller cannot read its own pod: " + r.self.unknown
	case scheduling.TolerationsTolerateTaint(logr.Discard(), r.self.pod.Spec.Tolerations, &taint, true):
		condition.Message = "the controller tolerates the taint"
	case rule.AddsTolerations(&r.self.pod) && r.self.pod.CreationTimestamp.Time.Before(c.Created):
		condition.Message = "the controller's next pod tolerates the taint: its pod is older than the rule"
	default:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonNotTolerated
		condition.Message = fmt.Sprintf("the controller's pod does not tolerate the taint. If every node has the taint, no "+
			"pod of the controller can be scheduled. Add %s to rules.toleratedKeys of the chart, or upgrade the release with "+
			"Helm, which adds the keys of existing rules", taint.Key)
	}
	return condition, nil
}

// readSelf reads the controller's own pod, unless it was read within podInterval.
func (r *Reconciler) readSelf(ctx context.Context) error {
	now := r.Rules.Now()
	if !r.self.read.IsZero() && now.Before(r.self.read.Add(podInterval)) {
		return nil
	}
	next := self{read: now}
	err := r.Live.Get(ctx, r.Pod, &next.pod)
	switch {
	// With worker.namespace, the controller may not read pods in its own namespace.
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		next.unknown = err.Error()
	case err != nil:
		return fmt.Errorf("read the controller's pod: %w", err)
	}
	r.self = next
	return nil
}
