package chaos

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// The marks of the controller, as it is configured here. They are written out, and not taken from the configuration, so that a
// fault in how it reads them is seen.
const (
	gatingKey     = "node-ready/unverified"
	verifiedLabel = "node-ready/verified"
	rulePrefix    = "readiness.k8s.io/"
	// workerStuck is the reason of an attempt that cannot start.
	workerStuck = "WorkerStuck"
)

// What others write on objects, which are all played here.
const (
	// annotationMarks holds all that others have put on a node. It is written with each of their marks, in one write, so every
	// state of a node says what the controller must have left alone.
	annotationMarks = "chaos.example/marks"
	// annotationRecord is another one whenever somebody has changed the controller's record by hand.
	annotationRecord = "chaos.example/record"
	// annotationEnded is on what somebody else than the controller deletes.
	annotationEnded = "chaos.example/ended"
	// annotationOn is the UID of the node that a pod of others is on.
	annotationOn = "chaos.example/on"
	// labelForged is on pods that somebody passes off as workers.
	labelForged = "chaos.example/forged"
	// labelProfile selects the profile b.
	labelProfile = "chaos.example/profile"
)

func gates(t corev1.Taint) bool {
	return t.Key == gatingKey && t.Effect == corev1.TaintEffectNoSchedule
}

func gated(n *corev1.Node) bool { return slices.ContainsFunc(n.Spec.Taints, gates) }

func verified(n *corev1.Node) bool { return n.Labels[verifiedLabel] == "true" }

func boot(n *corev1.Node) string { return n.Status.NodeInfo.BootID }

// recordOf is the controller's record of a node; the zero one where there is none for this node that can be read.
func recordOf(n *corev1.Node) marks.Record {
	var r marks.Record
	if json.Unmarshal([]byte(n.Annotations[marks.AnnotationRecord]), &r) != nil || r.NodeUID != string(n.UID) || r.Attempts < 0 {
		return marks.Record{}
	}
	return r
}

// foreign describes all on a node that is not the controller's to write.
func foreign(n *corev1.Node) string {
	labels, annotations, taints := map[string]string{}, map[string]string{}, []string{}
	for key, value := range n.Labels {
		if key != verifiedLabel {
			labels[key] = value
		}
	}
	own := []string{verifyCompleted, verifyResult}
	for key, value := range n.Annotations {
		if !slices.Contains(own, key) && key != marks.AnnotationRecord && key != marks.AnnotationRules && key != annotationMarks && !strings.HasPrefix(key, rulePrefix) {
			annotations[key] = value
		}
	}
	for _, t := range n.Spec.Taints {
		if !gates(t) && !strings.HasPrefix(t.Key, rulePrefix) {
			taints = append(taints, t.ToString())
		}
	}
	slices.Sort(taints)
	b, _ := json.Marshal(map[string]any{"labels": labels, "annotations": annotations, "taints": taints}) // strings only
	return string(b)
}

// announce writes down what others have put on the node.
func announce(n *corev1.Node) {
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[annotationMarks] = foreign(n)
}

// optedOut names the annotation that keeps the node from deletion; empty where none does.
func optedOut(n *corev1.Node) string {
	for _, key := range optOuts {
		if n.Annotations[key] == "true" {
			return key
		}
	}
	return ""
}

var optOuts = []string{"node-ready/do-not-delete", "karpenter.sh/do-not-repair", "karpenter.sh/do-not-disrupt", "cluster.x-k8s.io/skip-remediation", "node-ready/skip"} // the last is of more than deletion
