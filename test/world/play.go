package world

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world/termination"
)

// Patch changes a node by a merge patch.
func (w *World) Patch(n *corev1.Node, patch string) {
	w.Helper()
	target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	w.Must(w.API.Patch(w.Ctx, target, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// SetReady is what the node's kubelet, or the node lifecycle controller in its place, says of it.
func (w *World) SetReady(node string, status corev1.ConditionStatus) {
	w.Helper()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status)
	n := &corev1.Node{}
	n.Name = node
	w.Must(w.API.Status().Patch(w.Ctx, n, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
}

// Reboot is what the node's kubelet says after a reboot.
func (w *World) Reboot(node, boot string) {
	w.Helper()
	n := &corev1.Node{}
	n.Name = node
	patch := fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":%q}}}`, boot)
	w.Must(w.API.Status().Patch(w.Ctx, n, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// Deletes switches deletion on, within nodeManagement.
const Deletes = `"deleteFailedNodes": true`

// Record reads the record of a node.
func (w *World) Record(node string) marks.Record {
	_, f := w.Get(node)
	return f.Record
}

// FailsUntil plays a node whose checks fail until its record is as wanted.
func FailsUntil(w *World, done func(marks.Record) bool) func(*corev1.Pod) int {
	return func(p *corev1.Pod) int {
		if p.Labels[workerpod.LabelPurpose] == workerpod.PurposeProbe || done(w.Record(p.Annotations[workerpod.AnnotationNode])) {
			return 0
		}
		return 1
	}
}

// OrdinaryPod makes a pod on the node that is not ours.
func (w *World) OrdinaryPod(n *corev1.Node) {
	w.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "ordinary-" + n.Name}, Spec: corev1.PodSpec{
		NodeName: n.Name, ServiceAccountName: "kube-node-ready-worker", Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
}

// PastDeadline is a deadline of half a minute, and attempts that take 45 s at most and come every five minutes.
const PastDeadline = `{"worker": {"startTimeoutSeconds": 20, "timeoutSeconds": 20, "checkTimeoutSeconds": 10},
	"reconciliation": {"verificationDeadlineSeconds": 30, "initialBackoffSeconds": 300, "maxBackoffSeconds": 300},
	"nodeManagement": {` + Deletes + `}}`

// IsProbe reports whether the pod is a control probe.
func IsProbe(p *corev1.Pod) bool { return p.Labels[workerpod.LabelPurpose] == workerpod.PurposeProbe }

// VerifyExits is an exit for the workers that verify; probes pass.
func VerifyExits(code int) func(*corev1.Pod) int {
	return func(p *corev1.Pod) int {
		if IsProbe(p) {
			return 0
		}
		return code
	}
}

// RejectsVerify plays kubelets that reject what verifies.
func RejectsVerify(p *corev1.Pod) int { return VerifyExits(Rejects)(p) }

// Recreate replaces a node by another of its name.
func (w *World) Recreate(n *corev1.Node) *corev1.Node {
	w.Helper()
	w.Must(w.API.Delete(w.Ctx, n.DeepCopy()))
	next := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{WorldLabel: w.Namespace}}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{Gating}}}
	w.Create(next)
	return next
}

// ConditionText is the status, reason and message of a node's condition.
func (w *World) ConditionText(node string) string {
	w.Helper()
	_, facts := w.Get(node)
	c := facts.Condition
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

// ExpectCondition fails the test if the ConditionText of a node does not begin as wanted.
func (w *World) ExpectCondition(node, want string) {
	w.Helper()
	if got := w.ConditionText(node); !strings.HasPrefix(got, want) {
		w.Errorf("%s says %q, want %q", strings.TrimPrefix(node, w.Namespace+"-"), got, want)
	}
}

// Pods lists our pods, of one node if a name is given.
func (w *World) Pods(node string) []corev1.Pod {
	w.Helper()
	var list corev1.PodList
	w.Must(w.API.List(w.Ctx, &list, client.InNamespace(w.Namespace), client.MatchingLabels{workerpod.LabelComponent: workerpod.Component}))
	var out []corev1.Pod
	for _, p := range list.Items {
		if node == "" || p.Annotations[workerpod.AnnotationNode] == node {
			out = append(out, p)
		}
	}
	return out
}

// Kubelets lets every worker go on: one that terminates is gone, one that runs ends as w.exit says. Leaders see them before.
func (w *World) Kubelets(leaders ...*Leader) (acted bool) {
	w.Helper()
	pods := w.Pods("")
	for _, l := range leaders {
		l.showPods(pods)
	}
	for _, p := range pods {
		switch {
		case p.DeletionTimestamp != nil && (w.Linger || w.Hold != nil && w.Hold(&p)):
		case p.DeletionTimestamp != nil:
			w.Must(client.IgnoreNotFound(w.API.Delete(w.Ctx, &p, client.GracePeriodSeconds(0))))
			acted = true
		case p.Status.Phase == corev1.PodPending:
			code := w.Exit(&p)
			if code != Stays && (code != Pulls || len(p.Status.ContainerStatuses) == 0) {
				w.Terminate(&p, code)
				acted = true
			}
		}
	}
	return acted
}

// Terminate gives a worker the status of one that has ended with the code, or what else the code stands for.
func (w *World) Terminate(p *corev1.Pod, code int) {
	w.Helper()
	switch code {
	case Rejects:
		w.Status(p, `{"status":{"phase":"Failed","reason":"OutOfcpu","message":"Pod was rejected: Node didn't have enough resource: cpu"}}`)
		return
	case Runs:
		w.Status(p, fmt.Sprintf(`{"status":{"phase":"Running","containerStatuses":[{"name":"worker","image":"i",
			"imageID":"i","ready":true,"restartCount":0,"state":{"running":{"startedAt":%q}}}]}}`, time.Now().UTC().Format(time.RFC3339)))
		return
	case Pulls:
		w.Status(p, `{"status":{"containerStatuses":[{"name":"worker","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"waiting":{"reason":"ErrImagePull","message":"no route to the registry"}}}]}}`)
		return
	}
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	message := w.Report
	if message == nil {
		message = func(p *corev1.Pod, code int) string {
			return termination.Message(p.Annotations[workerpod.AnnotationNode], code)
		}
	}
	left, err := json.Marshal(message(p, code))
	w.Must(err)
	at := time.Now().UTC().Format(time.RFC3339)
	w.Status(p, fmt.Sprintf(`{"status":{"phase":%q,"containerStatuses":[{"name":"worker","image":"i","imageID":"i","ready":false,"restartCount":0,
		"state":{"terminated":{"exitCode":%d,"message":%s,"startedAt":%q,"finishedAt":%q}}}]}}`, phase, code, left, at, at))
}

// Status patches the status of a pod.
func (w *World) Status(p *corev1.Pod, patch string) {
	w.Helper()
	err := w.API.Status().Patch(w.Ctx, p.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
	w.Must(client.IgnoreNotFound(err))
}
