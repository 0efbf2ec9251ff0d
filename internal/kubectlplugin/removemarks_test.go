package kubectlplugin

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	kubernetestesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// removing is remove-marks in a cluster of these objects and of the NodeReadinessRule with UID there.
func removing(t *testing.T, cfg *config.Config, objects ...runtime.Object) (*invocation, *fake.Clientset) {
	t.Helper()
	rule := other(v1alpha1.GroupVersion.String(), "NodeReadinessRule", "", "there", map[string]any{})
	rule.SetUID("there")
	client := fake.NewClientset(objects...)
	return &invocation{cluster: &cluster{client: client, config: cfg,
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
			v1alpha1.GroupVersion.WithResource(v1alpha1.Resource): "NodeReadinessRuleList"}, rule)}}, client
}

// marked has every mark of the configuration configured, and what looks like one.
func marked(name string) *corev1.Node {
	const ours = `{"f:metadata":{"f:annotations":{"f:readiness.k8s.io/bootstrap-completed-gone":{},"f:readiness.k8s.io/bootstrap-completed-there":{}}}}`
	const others = `{"f:metadata":{"f:annotations":{"f:readiness.k8s.io/bootstrap-completed-other":{}}}}`
	n := makeNode(labelled, label("own/verified", "true"), label("asked/verified", ""), label("keep", "it"), gated, tainted("own/unverified"),
		tainted("readiness.k8s.io/agent"), tainted("readiness.k8s.io/keep"), tainted("keep"), having(passed),
		annotated(marks.AnnotationRules, `{"there":"readiness.k8s.io/agent:NoSchedule","b":"keep:NoSchedule"}`), annotated(marks.AnnotationReleased, `["there"]`),
		annotated(marks.AnnotationVerifyRequested, "1"), annotated(marks.AnnotationVerifyCompleted, "1"), annotated(marks.AnnotationVerifyResult, "passed"),
		annotated("own/completed-at", "1"), annotated("readiness.k8s.io/bootstrap-completed-gone", "{}"), annotated("readiness.k8s.io/bootstrap-completed-there", "{}"),
		annotated("readiness.k8s.io/bootstrap-completed-other", "{}"), annotated(marks.AnnotationSkip, "true"), annotated(marks.AnnotationDoNotDelete, "true"),
		condition(marks.ReasonChecksPassed, ""), asked("node-ready/RemediationRequired"), asked("a/B"), accusedBy("KernelDeadlock", now))
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "gpu/unverified", Effect: corev1.TaintEffectNoExecute}, corev1.Taint{Key: "gpu/unverified", Effect: corev1.TaintEffectNoSchedule},
		corev1.Taint{Key: config.DefaultTaintKey, Effect: corev1.TaintEffectPreferNoSchedule}, corev1.Taint{Key: "asked/unverified", Effect: corev1.TaintEffectNoSchedule})
	n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: eventSource, FieldsV1: metav1.NewFieldsV1(ours)},
		{Manager: "another", FieldsV1: metav1.NewFieldsV1(others)}}
	n.Name = name
	return n
}

const configured = `{nodeManagement: {taints: [{key: own/unverified, effect: NoSchedule}], verifiedLabel: {key: own/verified, value: "true"}, completedAnnotation: own/completed-at},
	profiles: [{name: gpu, nodeSelector: {matchLabels: {a: b}}, taints: [{key: gpu/unverified, effect: NoExecute}]}]}`

// A node with every mark of ours ends with none, and keeps what others wrote. A conflict of either patch is retried.
func TestRemoveMarks(t *testing.T) {
	v, client := removing(t, configuration(t, configured), marked("n"), makeNode(func(n *corev1.Node) { n.Name = "unmarked" }))
	v.gatingTaints, v.verifiedLabel, v.output = []string{"asked/unverified:NoExecute"}, "asked/verified", "json"
	conflicts := map[string]int{"": 1, "status": 1}
	client.PrependReactor("patch", "nodes", func(a kubernetestesting.Action) (bool, runtime.Object, error) {
		patch := a.(kubernetestesting.PatchAction).GetPatch()
		var guard struct {
			Metadata struct{ UID, ResourceVersion string }
		}
		if err := json.Unmarshal(patch, &guard); err != nil || guard.Metadata.UID != "uid" || guard.Metadata.ResourceVersion != "7" {
			t.Errorf("not guarded by UID and resourceVersion: %s", patch)
		}
		conflicts[a.GetSubresource()]--
		if conflicts[a.GetSubresource()] == 0 {
			return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "n", errors.New("it was written"))
		}
		return false, nil, nil
	})
	if err := reporting(removeMarks)(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	n, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for key := range n.Labels {
		left = append(left, key)
	}
	for key := range n.Annotations {
		left = append(left, key)
	}
	for _, taint := range n.Spec.Taints {
		left = append(left, taint.Key)
	}
	for _, c := range n.Status.Conditions {
		left = append(left, string(c.Type))
	}
	slices.Sort(left)
	if want := []string{"KernelDeadlock", "keep", "keep", "node-ready/do-not-delete", "node-ready/skip", "readiness.k8s.io/bootstrap-completed-other",
		"readiness.k8s.io/bootstrap-completed-there", "readiness.k8s.io/keep"}; !slices.Equal(left, want) {
		t.Errorf("left are %q\nwant %q", left, want)
	}
	want := "removed label asked/verified, label node-ready/verified, label own/verified, taint node-ready/unverified:NoSchedule, taint own/unverified:NoSchedule, " +
		"taint readiness.k8s.io/agent:NoSchedule, taint gpu/unverified:NoExecute, taint gpu/unverified:NoSchedule, taint node-ready/unverified:PreferNoSchedule, " +
		"taint asked/unverified:NoSchedule, annotation node-ready/record, annotation node-ready/rules, annotation node-ready/rules-released, " +
		"annotation node-ready/verify-completed, annotation node-ready/verify-requested, annotation node-ready/verify-result, annotation own/completed-at, " +
		"annotation readiness.k8s.io/bootstrap-completed-gone, condition node-ready/Verified, condition node-ready/RemediationRequired, condition a/B"
	if len(v.results) != 1 || v.results[0]["name"] != "node/n" || v.results[0]["result"] != want {
		t.Errorf("reported %q\nwant %q", v.results, want)
	}
	if conflicts[""] != -1 || conflicts["status"] != -1 {
		t.Errorf("not each patch was tried twice: %v", conflicts)
	}
}

// After helm uninstall the defaults count. Names choose nodes, and a dry run changes nothing.
func TestRemoveMarksOfNamedNodes(t *testing.T) {
	v, client := removing(t, configuration(t, ""), marked("n"), marked("other"))
	v.args = []string{"n"}
	for _, v.dryRun = range []bool{true, false} {
		v.out.Reset()
		if err := removeMarks(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		for name, removed := range map[string]bool{"n": !v.dryRun, "other": false} {
			n, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, recorded := n.Annotations[marks.AnnotationRecord]; recorded == removed || len(n.Status.Conditions) == 1 != removed {
				t.Errorf("%s, dry run %v: %v", name, v.dryRun, n.Annotations)
			}
			if n.Labels["own/verified"] == "" {
				t.Errorf("%s: a label that nothing names is gone", name)
			}
		}
		prefix := map[bool]string{true: "node/n: would remove label node-ready/verified, taint ", false: "node/n: removed label node-ready/verified, taint "}[v.dryRun]
		if out := v.out.String(); strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, prefix) || !strings.HasSuffix(out, ", condition a/B\n") {
			t.Errorf("%q", out)
		}
	}
	v.out.Reset()
	if err := removeMarks(t.Context(), v); err != nil || v.out.String() != "No marks found.\n" {
		t.Errorf("again: %q, %v", v.out.String(), err)
	}
	v.args = []string{"none"}
	if err := removeMarks(t.Context(), v); !apierrors.IsNotFound(err) {
		t.Errorf("a node that does not exist: %v", err)
	}
	v.gatingTaints = []string{"a:Never"}
	if err := removeMarks(t.Context(), v); err == nil || !strings.Contains(err.Error(), `--taint must be KEY:EFFECT, for example example.com/unverified:NoSchedule, not "a:Never"`) {
		t.Errorf("a taint of no known effect: %v", err)
	}
}

// A node that goes meanwhile took its marks with it.
func TestRemoveMarksOfANodeThatGoes(t *testing.T) {
	v, client := removing(t, configuration(t, ""), marked("n"))
	client.PrependReactor("patch", "nodes", func(kubernetestesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(corev1.Resource("nodes"), "n")
	})
	if err := removeMarks(t.Context(), v); err != nil {
		t.Error(err)
	}
}

// A controller that runs would write the marks again.
func TestRemoveMarksBesideAController(t *testing.T) {
	meta := func(component string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "own", Name: "main", Labels: map[string]string{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: component}}
	}
	stopped := appsv1.DeploymentSpec{Replicas: ptr.To(int32(0))}
	for name, test := range map[string]struct {
		object runtime.Object
		force  bool
		err    string
	}{
		"a controller":               {&appsv1.Deployment{ObjectMeta: meta(componentController)}, false, "Deployment own/main"},
		"forced":                     {&appsv1.Deployment{ObjectMeta: meta(componentController)}, true, ""},
		"a DaemonSet":                {&appsv1.DaemonSet{ObjectMeta: meta(componentDaemonSet)}, false, "DaemonSet own/main"},
		"another program":            {&appsv1.Deployment{ObjectMeta: meta("other")}, false, ""},
		"one of no replicas":         {&appsv1.Deployment{ObjectMeta: meta(componentController), Spec: stopped}, false, ""},
		"one whose replicas are yet": {&appsv1.Deployment{ObjectMeta: meta(componentController), Spec: stopped, Status: appsv1.DeploymentStatus{Replicas: 1}}, false, "Deployment own/main"},
	} {
		v, client := removing(t, configuration(t, ""), marked("n"), test.object)
		v.force = test.force
		err := removeMarks(t.Context(), v)
		refused := err != nil && strings.Contains(err.Error(), "a controller still runs and would write the marks again ("+test.err+"): remove it with helm uninstall, or set --force")
		if refused != (test.err != "") || !refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		n, _ := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		if _, kept := n.Annotations[marks.AnnotationRecord]; kept != refused {
			t.Errorf("%s: the record is kept: %v", name, kept)
		}
	}
}
