package admission

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/admission/cases"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

const policyMode = "controller.config.admission.mode=policy"

func TestPolicy(t *testing.T) {
	for _, group := range cases.Groups {
		t.Run(group.Name, func(t *testing.T) {
			setup(t, group.Config, policyMode)
			inForce(t, group)
			holds(t, "policy", group)
		})
	}
}

// kubeadm labels a control plane after its kubelet has registered the node, when the taint is on already. The controller takes it off.
func TestLabelledControlPlaneAfterItsCreation(t *testing.T) {
	i := setup(t, "{worker: {checks: []}, nodeManagement: {prerequisites: {nodeReady: true}}}", policyMode)
	inForce(t, cases.Groups[0])
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kubeadms"}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	if taints, err := create(t.Context(), n, false); err != nil || len(taints) != 1 {
		t.Fatalf("created with %q (%v)", taints, err)
	}
	label := `{"metadata": {"labels": {"` + marks.LabelControlPlane + `": ""}}}`
	if _, err := k8s.CoreV1().Nodes().Patch(t.Context(), n.Name, types.StrategicMergePatchType, []byte(label), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c, err := install.StartController(t.Context(), control, "late", i.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Terminate(0) })
	eventually(t, "the control plane is released", func() error {
		got, err := k8s.CoreV1().Nodes().Get(context.Background(), n.Name, metav1.GetOptions{})
		if err == nil && len(got.Spec.Taints) > 0 {
			err = errors.New("it has " + cases.String(got.Spec.Taints[0]))
		}
		return err
	})
}
