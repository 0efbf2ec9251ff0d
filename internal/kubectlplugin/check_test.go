package kubectlplugin

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// TestCheckComparesThePodThatIsStored checks that the command waits for no pod that a mutating policy has taken from its
// node, and leaves none behind. A change that shows in the dry run creates none.
func TestCheckComparesThePodThatIsStored(t *testing.T) {
	errWaits := errors.New("it waits for the pod")
	elsewhere := &corev1.Affinity{}
	for name, c := range map[string]struct {
		alter func(*corev1.Pod)
		says  string
	}{
		"as it was sent":       {func(*corev1.Pod) {}, errWaits.Error()},
		"a sidecar's label":    {func(p *corev1.Pod) { p.Labels["team"] = "infra" }, errWaits.Error()},
		"another affinity":     {func(p *corev1.Pod) { p.Spec.Affinity = elsewhere }, "spec.affinity does not pin it"},
		"another node":         {func(p *corev1.Pod) { p.Spec.NodeName = "m" }, `spec.nodeName is "m"`},
		"no owner":             {func(p *corev1.Pod) { p.OwnerReferences = nil }, "metadata.ownerReferences lacks"},
		"no tolerations":       {func(p *corev1.Pod) { p.Spec.Tolerations = nil }, "spec.tolerations lacks"},
		"another node's label": {func(p *corev1.Pod) { p.Labels[workerpod.LabelNodeUID] = "x" }, "node-uid] is"},
		"a critical priority": {func(p *corev1.Pod) {
			p.Spec.PriorityClassName, p.Spec.Priority = "system-node-critical", ptr.To[int32](2_000_001_000)
		}, "spec.priorityClassName is"},
	} {
		for _, inDryRun := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, in the dry run %t", name, inDryRun), func(t *testing.T) {
				client := fake.NewClientset(makeNode(labelled, having(passed)))
				var stored *corev1.Pod
				created := 0
				client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
					create := a.(clienttesting.CreateActionImpl)
					pod := create.GetObject().(*corev1.Pod).DeepCopy()
					isDryRun := len(create.GetCreateOptions().DryRun) > 0
					if inDryRun || !isDryRun {
						c.alter(pod)
					}
					if !isDryRun {
						pod.UID = "pod"
						stored, created = pod, created+1
					}
					return true, pod, nil
				})
				client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, errWaits
				})
				client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
					remove := a.(clienttesting.DeleteActionImpl)
					precondition := remove.DeleteOptions.Preconditions
					if stored == nil || remove.GetName() != stored.Name || precondition == nil || *precondition.UID != stored.UID {
						return true, nil, apierrors.NewConflict(corev1.Resource("pods"), remove.GetName(), nil)
					}
					stored = nil
					return true, &metav1.Status{}, nil
				})
				v := &invocation{now: now, args: []string{"n"}, timeout: cleanUp, warnings: &strings.Builder{},
					cluster: &cluster{client: client, component: componentController, namespace: "own", config: configuration(t, "{}")}}
				err := check(t.Context(), v)
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v, want %q", err, c.says)
				}
				altered := c.says != errWaits.Error()
				if want := altered && inDryRun; (created == 0) != want || stored != nil {
					t.Errorf("%d pods created, and left is %v", created, stored)
				}
			})
		}
	}
}
