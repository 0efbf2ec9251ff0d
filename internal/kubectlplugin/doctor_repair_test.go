package kubectlplugin

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryfake "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
)

// other is an object of another program, with its spec.
func other(apiVersion, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func acts(path string, conditions ...map[string]any) map[string]any {
	var list []any
	for _, c := range conditions {
		list = append(list, c)
	}
	spec := map[string]any{}
	fields := strings.Split(path, ".")
	_ = unstructured.SetNestedSlice(spec, list, fields...)
	return spec
}

func on(kind, status string) map[string]any { return map[string]any{"type": kind, "status": status} }

// Doctor finds repairers that bypass the guards or never act, conditions that stay, and settings that nothing comes of.
func TestDoctorOfRepair(t *testing.T) {
	const suspicion = `{nodeManagement: {reverify: {onConditions: [{type: KernelDeadlock}]}}}`
	carries := []runtime.Object{makeNode(asked("node-ready/RemediationRequired"))}
	capi, medik8s := "cluster.x-k8s.io/v1beta1", "remediation.medik8s.io/v1alpha1"
	for name, test := range map[string]struct {
		config string
		others []runtime.Object
		nodes  []runtime.Object
		// The component is that of the controller if it is empty.
		component string
		// The parts of what is found and noted.
		found, noted []string
	}{
		"nothing": {config: "{}"},
		"a repairer on our condition": {config: "{}", others: []runtime.Object{
			other(capi, "MachineHealthCheck", "prod", "workers", acts("unhealthyConditions", on("Ready", "False"), on("node-ready/Verified", "False")))},
			found: []string{"MachineHealthCheck prod/workers of Cluster API acts on the condition node-ready/Verified, which shows the first failure: it bypasses every guard"}},
		"in the form of a later version": {config: "{}", others: []runtime.Object{
			other(capi, "MachineHealthCheck", "prod", "workers", acts("checks.unhealthyNodeConditions", on("node-ready/Verified", "False")))},
			found: []string{"bypasses every guard"}},
		"another repairer": {config: "{}", others: []runtime.Object{
			other(medik8s, "NodeHealthCheck", "", "all", acts("unhealthyConditions", on("node-ready/Verified", "Unknown")))},
			found: []string{"NodeHealthCheck all of medik8s acts on the condition node-ready/Verified"}},
		"one on the action's condition": {config: asking, others: []runtime.Object{
			other(medik8s, "NodeHealthCheck", "", "all", acts("unhealthyConditions", on("node-ready/RemediationRequired", "True")))},
			noted: []string{"remediation.neverVerifiedOnly is on"}},
		"on its other status": {config: asking, others: []runtime.Object{
			other(medik8s, "NodeHealthCheck", "", "all", acts("unhealthyConditions", on("node-ready/RemediationRequired", "False")))},
			found: []string{"acts on node-ready/RemediationRequired=False, but remediation.condition sets it to True, so it never acts"},
			noted: []string{"remediation.neverVerifiedOnly is on"}},
		"on one that nobody sets": {config: "{}", others: []runtime.Object{
			other(medik8s, "NodeHealthCheck", "", "all", acts("unhealthyConditions", on("node-ready/RemediationRequired", "True")))},
			found: []string{"which kube-node-ready does not set, so it never acts"}},
		"on the accusation itself": {config: suspicion, others: []runtime.Object{
			other(capi, "MachineHealthCheck", "prod", "workers", acts("unhealthyConditions", on("KernelDeadlock", "True")))},
			noted: []string{"acts on the condition KernelDeadlock, which also makes nodes suspect"}},
		"a rule that evicts": {config: "{}", others: []runtime.Object{
			other("readiness.node.x-k8s.io/v1alpha1", "NodeReadinessRule", "", "evicts", map[string]any{"enforcementMode": "continuous",
				"taint": map[string]any{"effect": "NoExecute"}, "conditions": []any{map[string]any{"type": "node-ready/Verified", "requiredStatus": "True"}}}),
			other("readiness.node.x-k8s.io/v1alpha1", "NodeReadinessRule", "", "closes", map[string]any{"enforcementMode": "continuous",
				"taint": map[string]any{"effect": "NoSchedule"}, "conditions": []any{map[string]any{"type": "node-ready/Verified", "requiredStatus": "True"}}})},
			noted: []string{"NodeReadinessRule evicts evicts the pods of a node whenever node-ready/Verified is not True"}},
		"no repairer for the action's condition": {config: asking, nodes: carries,
			noted: []string{"remediation.neverVerifiedOnly is on", "no node has the condition KernelDeadlock",
				"sets the condition node-ready/RemediationRequired=True, and no MachineHealthCheck or NodeHealthCheck acts on it"}},
		"an action that is off": {config: strings.Replace(asking, "deleteFailedNodes: true, ", "", 1), nodes: carries,
			found: []string{"node n has the condition node-ready/RemediationRequired of an earlier configuration"},
			noted: []string{"deleteFailedNodes is off, so no action is taken", "no node has the condition KernelDeadlock"}},
		"a condition of another type": {config: strings.Replace(asking, "action: condition", "action: condition, condition: {type: a/B}", 1), nodes: carries,
			found: []string{"node n has the condition node-ready/RemediationRequired of an earlier configuration"},
			noted: []string{"remediation.neverVerifiedOnly is on", "no node has the condition KernelDeadlock", "sets the condition a/B=True"}},
		"a condition in DaemonSet mode": {config: "{}", nodes: carries, component: componentDaemonSet,
			found: []string{"node n has the condition node-ready/RemediationRequired of an earlier configuration"}},
		"nothing in DaemonSet mode": {config: suspicion, component: componentDaemonSet, nodes: []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}},
		"a detector that runs": {config: suspicion, nodes: []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "KernelDeadlock", Status: "False"}}}}}},
		"one that does not": {config: suspicion, nodes: []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
			noted: []string{"no node has the condition KernelDeadlock, which reverify.onConditions names"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(test.nodes...)
			client.Discovery().(*discoveryfake.FakeDiscovery).Resources = []*metav1.APIResourceList{
				{GroupVersion: capi, APIResources: []metav1.APIResource{{Name: "machinehealthchecks", Kind: "MachineHealthCheck", Namespaced: true}}},
				{GroupVersion: medik8s, APIResources: []metav1.APIResource{{Name: "nodehealthchecks", Kind: "NodeHealthCheck"}}},
			}
			v := &invocation{cluster: &cluster{client: client, config: configuration(t, test.config), component: test.component,
				dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
					{Group: "cluster.x-k8s.io", Version: "v1beta1", Resource: "machinehealthchecks"}:        "MachineHealthCheckList",
					{Group: "remediation.medik8s.io", Version: "v1alpha1", Resource: "nodehealthchecks"}:    "NodeHealthCheckList",
					{Group: "readiness.node.x-k8s.io", Version: "v1alpha1", Resource: "nodereadinessrules"}: "NodeReadinessRuleList",
				}, test.others...)}}
			d := diagnosis{check: "repair"}
			if err := examineRepair(t.Context(), v, &d); err != nil {
				t.Fatal(err)
			}
			matches := func(what string, got []finding, want []string) {
				ok := len(got) == len(want)
				for i := range min(len(got), len(want)) {
					ok = ok && strings.Contains(got[i].What, want[i]) && got[i].Fix != "" && got[i].Check == "repair"
				}
				if !ok {
					t.Errorf("%s %+v, want %q", what, got, want)
				}
			}
			for _, f := range d.Findings {
				if strings.Contains(f.What, "of an earlier configuration") && strings.Contains(f.Fix, "kubectl patch") != (test.component != "") {
					t.Errorf("the fix is %q", f.Fix)
				}
			}
			matches("found", d.Findings, test.found)
			matches("noted", d.Notes, test.noted)
		})
	}
}
