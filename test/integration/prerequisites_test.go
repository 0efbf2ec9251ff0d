package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

func prerequisites(p map[string]any) func(map[string]any) {
	// An interval of an hour: nothing here may depend on a resync.
	return func(c map[string]any) {
		set("nodeManagement", map[string]any{"prerequisites": p})(c)
		set("reconciliation", map[string]any{"intervalSeconds": 3600})(c)
	}
}

// waits checks that the node waits, says for what, and has no worker.
func (s *suite) waits(name, what string) {
	s.Helper()
	s.becomes(name, "waiting for "+what, func(f marks.Facts) bool {
		return says(marks.ReasonWaitingForPrerequisites)(f) && strings.Contains(f.Condition.Message, what)
	})
	s.stays(500*time.Millisecond, name, "waiting", func(f marks.Facts) bool { return f.Gated })
	if p := s.workers(name); len(p) > 0 {
		s.Errorf("%s has a worker before its prerequisites hold", name)
	}
}

// A DaemonSet warms the node up and says so by an annotation.
func TestRacePodPrerequisites(t *testing.T) {
	s := begin(t, func(c map[string]any) {
		prerequisites(map[string]any{"pods": []any{map[string]any{"namespace": c["nodeManagement"].(map[string]any)["nodeSelector"].(map[string]any)["matchLabels"].(map[string]any)[testLabel],
			"selector": map[string]any{"matchLabels": map[string]any{"app": "agent"}}, "readyAnnotation": "warm/done", "readyBy": "both", "currentRevision": true}}})(c)
	})
	s.controller()
	n := s.node("a")
	s.waits(n.Name, "there is none on the node")

	s.daemonSet("agent", func(ds *appsv1.DaemonSet) { ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType })
	s.waits(n.Name, "does not carry annotation warm/done=true")

	// A new revision that the pod is not of.
	s.must(k8s.AppsV1().DaemonSets(s.name).Patch(s.ctx, "agent", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"metadata":{"annotations":{"revision":"2"}}}}}`), metav1.PatchOptions{}))
	s.eventually("the DaemonSet has a second revision", func() string {
		l, err := k8s.AppsV1().ControllerRevisions(s.name).List(s.ctx, metav1.ListOptions{})
		if err != nil || len(l.Items) != 2 {
			return fmt.Sprint(err)
		}
		return ""
	})
	s.annotate("agent", "warm/done", "true")
	s.waits(n.Name, "current revision")

	pods, err := k8s.CoreV1().Pods(s.name).List(s.ctx, metav1.ListOptions{LabelSelector: "app=agent"})
	if err != nil || len(pods.Items) != 1 {
		t.Fatal(err, len(pods.Items))
	}
	old := pods.Items[0].UID
	s.must(nil, k8s.CoreV1().Pods(s.name).Delete(s.ctx, pods.Items[0].Name, metav1.DeleteOptions{}))
	s.eventually("the pod of the new revision runs", func() string {
		pods, err := k8s.CoreV1().Pods(s.name).List(s.ctx, metav1.ListOptions{LabelSelector: "app=agent", FieldSelector: "status.phase=Running"})
		if err != nil || len(pods.Items) != 1 || pods.Items[0].UID == old {
			return fmt.Sprint(err)
		}
		return ""
	})
	s.annotate("agent", "warm/done", "true")
	s.becomes(n.Name, "verified", isVerified)
}

// annotate annotates the one pod of an app.
func (s *suite) annotate(app, key, value string) {
	s.Helper()
	pods, err := k8s.CoreV1().Pods(s.name).List(s.ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil || len(pods.Items) != 1 {
		s.Fatal(err, len(pods.Items))
	}
	s.must(k8s.CoreV1().Pods(s.name).Patch(s.ctx, pods.Items[0].Name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value), metav1.PatchOptions{}))
}

const storageCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: storages.warm.example.com}
spec:
  group: warm.example.com
  scope: Cluster
  names: {kind: Storage, plural: storages}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// A custom resource, one for each node, whose definition is installed after the controller started.
func TestRaceResourcePrerequisites(t *testing.T) {
	s := begin(t, prerequisites(map[string]any{"resources": []any{map[string]any{
		"apiVersion": "warm.example.com/v1", "kind": "Storage", "selector": "node={{node}}", "condition": "Attached", "status": "True"}}}))
	s.controller()
	n := s.node("a")
	s.waits(n.Name, "Storage")
	if err := install.Apply(s.ctx, control, []byte(storageCRD)); err != nil {
		t.Fatal(err)
	}
	s.waits(n.Name, "no such object")
	storages := dynamic.NewForConfigOrDie(control.Config()).Resource(schema.GroupVersionResource{Group: "warm.example.com", Version: "v1", Resource: "storages"})
	object := func(nodeName string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "warm.example.com/v1", "kind": "Storage",
			"metadata": map[string]any{"name": nodeName, "labels": map[string]any{"node": nodeName}}}}
	}
	var have *unstructured.Unstructured
	s.eventually("the definition is served", func() string {
		var err error
		have, err = storages.Create(s.ctx, object(n.Name), metav1.CreateOptions{})
		return fmt.Sprint(orEmpty(err))
	})
	other, err := storages.Create(s.ctx, object("another"), metav1.CreateOptions{})
	s.must(other, err)
	s.waits(n.Name, "says nothing")
	attach := func(o *unstructured.Unstructured, status string) {
		o.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Attached", "status": status}}}
		_, err := storages.UpdateStatus(s.ctx, o, metav1.UpdateOptions{})
		s.must(nil, err)
	}
	attach(other, "True")
	s.waits(n.Name, "says nothing")
	attach(have, "True")
	s.becomes(n.Name, "verified", isVerified)
}

// No worker starts on a node that others are about to remove; one that stays after all is verified.
func TestLeavingNodesGetNoWorker(t *testing.T) {
	s := begin(t, set("reconciliation", map[string]any{"intervalSeconds": 3600}))
	tainted := func(key string) func(*nodeagent.NodeSpec) {
		return func(n *nodeagent.NodeSpec) {
			n.Taints = append(n.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	autoscaler, karpenter := s.node("autoscaler", tainted("ToBeDeletedByClusterAutoscaler")), s.node("karpenter", tainted("karpenter.sh/disrupted"))
	drained := s.node("drained", tainted("ToBeDeletedByClusterAutoscaler"))
	s.must(nil, drained.SetCondition(s.ctx, corev1.NodeCondition{Type: "DrainInProgress", Status: corev1.ConditionTrue}))
	s.patchNode(drained.Name, `{"spec":{"taints":[{"key":"node-ready/unverified","value":"true","effect":"NoSchedule"}]}}`)
	deleted := s.node("deleted")
	s.patchNode(deleted.Name, `{"metadata":{"finalizers":["example.com/hold"]}}`)
	s.must(nil, k8s.CoreV1().Nodes().Delete(s.ctx, deleted.Name, metav1.DeleteOptions{}))
	// Before Karpenter has registered it, nothing on a Node says that its NodeClaim is being deleted.
	unclaimed := s.node("unclaimed", func(n *nodeagent.NodeSpec) { n.ProviderID = "kwok://" + n.Name })
	claim := s.claim(unclaimed.Name, "leaving")
	s.must(nil, s.karpenter().Delete(s.ctx, claim))
	s.controller()
	s.waits(unclaimed.Name, "its NodeClaim "+claim.Name+" is being deleted")
	s.waits(autoscaler.Name, "it has the taint ToBeDeletedByClusterAutoscaler")
	s.waits(karpenter.Name, "it has the taint karpenter.sh/disrupted")
	s.waits(drained.Name, "its condition DrainInProgress is True")
	s.patchNode(karpenter.Name, `{"spec":{"taints":[{"key":"node-ready/unverified","value":"true","effect":"NoSchedule"}]}}`)
	s.must(nil, drained.SetCondition(s.ctx, corev1.NodeCondition{Type: "DrainInProgress", Status: corev1.ConditionFalse}))
	s.becomes(karpenter.Name, "verified once its disruption was rolled back", isVerified)
	s.becomes(drained.Name, "verified once its drain was called off", isVerified)
	if n := s.created.of(autoscaler.Name) + s.created.of(deleted.Name) + s.created.of(unclaimed.Name); n > 0 {
		t.Errorf("%d workers were made on nodes that are leaving", n)
	}
	s.patchNode(deleted.Name, `{"metadata":{"finalizers":null}}`)
}
