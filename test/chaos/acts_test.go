package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// weather sets that of a replica's connections to the API server for a while.
func (w *world) weather(ctx context.Context, rng *rand.Rand, is weather) {
	p := w.proxies[rng.IntN(replicas)]
	p.set(is)
	pause(ctx, between(rng, time.Second, 4*time.Second))
	p.set(weather{})
}

// reboot changes a node's boot, as its kubelet does once it is up again.
func (w *world) reboot(slot int) error {
	n := &corev1.Node{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: nodeName(slot)}, n); err != nil {
		return err
	}
	return w.status(n, fmt.Sprintf(`{"nodeInfo":{"bootID":%q}}`, boot(n)+"+"))
}

// status patches a node's status, as its kubelet does.
func (w *world) status(n *corev1.Node, status string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":%s}`, n.UID, status)
	return w.api.Status().Patch(w.ctx, n, client.RawPatch("application/strategic-merge-patch+json", patch))
}

// foreignMark puts a taint, a label and an annotation on a node, changes them, or takes them away.
func foreignMark(rng *rand.Rand) func(*corev1.Node) error {
	value := fmt.Sprint(rng.IntN(1000))
	// One is like a gating taint but for its effect.
	key := []string{"other.example/taint", gatingKey}[rng.IntN(2)]
	put := rng.IntN(2) == 0
	return func(n *corev1.Node) error {
		var kept []corev1.Taint
		for _, t := range n.Spec.Taints {
			if t.Key != key || gates(t) {
				kept = append(kept, t)
			}
		}
		delete(n.Labels, "other.example/label")
		if n.Spec.Taints = kept; put {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectPreferNoSchedule})
			n.Labels["other.example/label"] = value
		}
		n.Annotations["other.example/annotation"] = value
		return nil
	}
}

// condition sets a condition of a node.
func (w *world) condition(slot int, of corev1.NodeConditionType, status corev1.ConditionStatus) error {
	n := &corev1.Node{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: nodeName(slot)}, n); err != nil {
		return client.IgnoreNotFound(err)
	}
	return w.setCondition(n, corev1.NodeCondition{Type: of, Status: status, Reason: "Chaos"})
}

func (w *world) setCondition(n *corev1.Node, c corev1.NodeCondition) error {
	c.LastTransitionTime = w.kubeletTime(n.Name)
	c.LastHeartbeatTime = c.LastTransitionTime
	b, err := json.Marshal([]corev1.NodeCondition{c})
	return errors.Join(err, w.status(n, fmt.Sprintf(`{"conditions":%s}`, b)))
}

// closeGate puts the gating taint back, as a person does.
func closeGate(n *corev1.Node) error {
	if gated(n) {
		return errSame
	}
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: gatingKey, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	return nil
}

// leaving marks a node that Cluster Autoscaler is about to remove, or takes that back.
func leaving(is bool) func(*corev1.Node) error {
	return func(n *corev1.Node) error {
		var kept []corev1.Taint
		for _, t := range n.Spec.Taints {
			if t.Key != "ToBeDeletedByClusterAutoscaler" {
				kept = append(kept, t)
			}
		}
		if is {
			kept = append(kept, corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule})
		}
		if len(kept) == len(n.Spec.Taints) {
			return errSame
		}
		n.Spec.Taints = kept
		return nil
	}
}

// spoil removes or replaces the record; the number tells it from any other time.
func spoil(rng *rand.Rand) func(*corev1.Node) error {
	kind, number := rng.IntN(4), fmt.Sprint(rng.Uint64())
	return func(n *corev1.Node) error {
		negative := recordOf(n)
		negative.NodeUID, negative.Attempts = string(n.UID), -1
		n.Annotations[marks.AnnotationRecord] = []string{"", "{", `{"sequence":-1}`, negative.Encode()}[kind]
		if kind == 0 {
			delete(n.Annotations, marks.AnnotationRecord)
		}
		n.Annotations[annotationRecord] = number
		return nil
	}
}

// restore replaces a node by another one of its name that has its record, as somebody does who applies what he saved.
func (w *world) restore(slot int) error {
	_, err := w.returns(slot, func(fresh, former *corev1.Node) {
		fresh.Annotations = map[string]string{marks.AnnotationRecord: former.Annotations[marks.AnnotationRecord]}
	})
	return err
}

// pauseRemediation does what kubectl node-ready pause and resume do.
func (w *world) pauseRemediation(why string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, ledger.AnnotationPaused, why)
	l := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ledger.Name}}
	return w.api.Patch(w.ctx, l, client.RawPatch("application/merge-patch+json", patch))
}

func rule() *v1alpha1.NodeReadinessRule {
	return &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: ruleName}, Spec: v1alpha1.NodeReadinessRuleSpec{
		Conditions:      []v1alpha1.ConditionRequirement{{Type: string(agentReady), RequiredStatus: corev1.ConditionTrue}},
		EnforcementMode: v1alpha1.ModeContinuous,
		Taint:           corev1.Taint{Key: rulePrefix + ruleName, Effect: corev1.TaintEffectNoSchedule},
		NodeSelector:    metav1.LabelSelector{MatchLabels: map[string]string{labelAgent: "true"}},
	}}
}

// ordinary makes an ordinary pod on a node.
func (w *world) ordinary(slot int, id uint64) error {
	n := &corev1.Node{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: nodeName(slot)}, n); err != nil {
		return err
	}
	return w.api.Create(w.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("ordinary-%d", id), Annotations: map[string]string{annotationOn: string(n.UID)}},
		Spec: corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
}

// someWorker is one of the workers that are there; nil where none is.
func (w *world) someWorker(rng *rand.Rand) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := w.api.List(w.ctx, &pods, client.InNamespace(namespace)); err != nil || len(pods.Items) == 0 {
		return nil, err
	}
	return &pods.Items[rng.IntN(len(pods.Items))], nil
}

// forge makes a pod that looks like the next worker of a node, and passed: with another name, or with that name and another owner.
func (w *world) forge(slot int, named bool) error {
	n := &corev1.Node{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: nodeName(slot)}, n); err != nil {
		return err
	}
	next := recordOf(n).Sequence + 1
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("verify-%s-forged-%d", n.Name, next),
		Labels: map[string]string{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: workerpod.Component, workerpod.LabelNodeUID: string(n.UID),
			workerpod.LabelPurpose: workerpod.PurposeVerify, labelForged: "true"},
		Annotations: map[string]string{workerpod.AnnotationNode: n.Name, workerpod.AnnotationAttempt: fmt.Sprint(next), workerpod.AnnotationBootID: boot(n),
			workerpod.AnnotationGated: "true", annotationOn: string(n.UID)},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}},
		Spec: corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Name: workerpod.Container, Image: "i"}}}}
	if named {
		pod.Name = workerpod.VerifyName(workerpod.Target{Name: n.Name, UID: string(n.UID)}, next)
		pod.OwnerReferences[0].UID = "another"
	}
	if err := w.api.Create(w.ctx, pod); err != nil {
		return err
	}
	w.report(pod, workerStatus(pod, corev1.PodSucceeded, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}))
	return nil
}

// calmDown ends what a fault has left behind and that no one but who did it can end.
func (w *world) calmDown() error {
	w.mu.Lock()
	w.calm, w.bad, w.silent, w.absent = true, [slots]bool{}, [slots]time.Time{}, [slots]time.Time{}
	w.wrapped = w.absent
	for slot := range slots {
		if time.Until(w.ill[slot]) < time.Minute {
			w.ill[slot] = time.Time{}
		}
	}
	dead := w.dead
	w.mu.Unlock()
	now := time.Now()
	w.policy.enforce(now, now)
	err := w.pauseRemediation("false")
	for slot := range slots {
		back := func(n *corev1.Node) error {
			left := leaving(false)(n)
			if n.Annotations["node-ready/skip"] == "" && left != nil {
				return errSame
			}
			delete(n.Annotations, "node-ready/skip")
			return nil
		}
		err = errors.Join(err, client.IgnoreNotFound(w.mark(slot, back)), w.acquit(slot), w.condition(slot, agentReady, corev1.ConditionTrue))
		if !dead[slot] {
			err = errors.Join(err, w.condition(slot, corev1.NodeReady, corev1.ConditionTrue))
		}
	}
	var pods corev1.PodList
	err = errors.Join(err, w.api.List(w.ctx, &pods, client.InNamespace(namespace), client.HasLabels{labelForged}))
	for i := range pods.Items {
		err = errors.Join(err, w.end(&pods.Items[i], 0))
	}
	return err
}
