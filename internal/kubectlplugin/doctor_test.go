package kubectlplugin

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	kubernetestesting "k8s.io/client-go/testing"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/nodepool"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Doctor asks about every right that the configuration needs, in a dry run about none that it would use, and lists the
// controller's pods once.
func TestDoctorAsksForEachRight(t *testing.T) {
	labels := map[string]string{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: componentController}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "c", Labels: labels},
		Spec: corev1.PodSpec{ServiceAccountName: "account", Containers: []corev1.Container{{Args: []string{"--dry-run"}}}}}
	client := fake.NewClientset(pod)
	client.PrependReactor("create", "subjectaccessreviews", func(kubernetestesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SubjectAccessReview{}, nil // which allows nothing
	})
	c := &cluster{client: client, component: componentController, controllerNamespace: "own", namespace: "own",
		config: configuration(t, `{nodeManagement: {deleteFailedNodes: true, prerequisites: {
			pods: [{namespace: a, selector: {matchLabels: {a: b}}, currentRevision: true}],
			resources: [{apiVersion: example.com/v1, kind: Ox, condition: Ready}]}}}`),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{nodepool.Resource: "NodePoolList",
				v1alpha1.GroupVersion.WithResource(v1alpha1.Resource): "NodeReadinessRuleList"})}
	v := &invocation{cluster: c, connection: genericclioptions.NewConfigFlags(true), configPath: "given"}
	if err := doctor(t.Context(), v); err == nil {
		t.Error("an account without rights is nothing to it")
	}
	lists := 0
	for _, a := range client.Actions() {
		l, ok := a.(kubernetestesting.ListAction)
		if ok && a.GetResource().Resource == "pods" && l.GetListRestrictions().Labels.String() ==
			workerpod.LabelComponent+"="+componentController+","+workerpod.LabelName+"="+workerpod.Name {
			lists++
		}
	}
	if lists != 1 {
		t.Errorf("the controller's pods are listed %d times", lists)
	}
	out := v.out.String()
	if !strings.Contains(out, "service account own/kube-node-ready-worker may not get services kubernetes in default") {
		t.Errorf("not asked for what the workers read:\n%s", out)
	}
	for what, want := range map[string]bool{
		"list, watch leases.coordination.k8s.io ba65f13e.readiness.node.x-k8s.io in the cluster": true,
		"list, watch controllerrevisions.apps in a":                                              true,
		"get configmaps kube-node-ready-remediations in own":                                     true,
		"patch nodes/status in the cluster":                                                      true,
		"delete nodes":                                                                           false,
		"list, watch oxes.example.com":                                                           false,
		"get services coredns in kube-system":                                                    false,
	} {
		if strings.Contains(out, "service account own/account may not "+what) != want {
			t.Errorf("asked for %s, want %v:\n%s", what, want, out)
		}
	}
}

// What a stolen token allows follows from the namespace's labels and from whether the controller deletes.
func TestStolenToken(t *testing.T) {
	for level, want := range map[string]string{
		"":           "by a privileged pod in namespace w, whose labels enforce no Pod Security, become administrator",
		"privileged": "become administrator",
		"baseline":   "privileged pods are refused in namespace w (Pod Security baseline)",
		"restricted": "privileged pods are refused in namespace w (Pod Security restricted)",
	} {
		for _, deletes := range []bool{false, true} {
			n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "w", Labels: map[string]string{labelEnforce: level}}}
			what, fix := stolenToken(n, deletes)
			if !strings.Contains(what, want) || strings.Contains(what, "delete nodes") != deletes || fix == "" {
				t.Errorf("%q, deletes %v: %s; %s", level, deletes, what, fix)
			}
		}
	}
}

// Doctor lists the DaemonSets that registered themselves, and says where none did.
func TestDoctorListsRegisteredDaemonSets(t *testing.T) {
	client := fake.NewClientset(
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "agent", Labels: map[string]string{"a": "b"}}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "driver", Labels: map[string]string{"a": "b"}}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "other"}})
	v := &invocation{cluster: &cluster{client: client, config: configuration(t, `{nodeManagement: {prerequisites: {daemonSets: [
		{namespace: b, name: other}, {selector: {matchLabels: {a: b}}}, {selector: {matchLabels: {a: c}}}]}}}`)}}
	var d diagnosis
	if err := examineAgents(t.Context(), v, &d); err != nil {
		t.Fatal(err)
	}
	var notes []string
	for _, n := range d.Notes {
		notes = append(notes, n.What)
	}
	if got := strings.Join(notes, "\n"); len(d.Findings) > 0 || got != "new nodes wait for DaemonSets a=b: b/driver, x/agent\n"+
		"new nodes wait for DaemonSets a=c: none has registered itself" {
		t.Errorf("%v %s", d.Findings, got)
	}
}
