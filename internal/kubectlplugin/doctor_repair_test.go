package kubectlplugin

import (
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryfake "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	kubernetestesting "k8s.io/client-go/testing"
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

// Doctor finds repairers that bypass the guards, actions that cannot be taken, and settings that nothing comes of.
func TestDoctorOfRepair(t *testing.T) {
	const job = `{nodeManagement: {deleteFailedNodes: true, remediation: {actions: [{object: {template: {apiVersion: batch/v1, kind: Job, metadata: {namespace: repair}}}}]}}}`
	const suspicion = `{nodeManagement: {reverify: {onConditions: [{type: KernelDeadlock}]}}}`
	capi, medik8s := "cluster.x-k8s.io/v1beta1", "remediation.medik8s.io/v1alpha1"
	for name, test := range map[string]struct {
		config string
		others []runtime.Object
		nodes  []runtime.Object
		denied []string
		dryRun bool
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
		"one on the action's condition": {config: ladder, others: []runtime.Object{
			other(medik8s, "NodeHealthCheck", "", "all", acts("unhealthyConditions", on("node-ready/RemediationRequired", "True")))},
			noted: []string{"remediation.neverVerifiedOnly is on"}},
		"on its other status": {config: ladder, others: []runtime.Object{
			other(medik8s, "NodeHealthCheck", "", "all", acts("unhealthyConditions", on("node-ready/RemediationRequired", "False")))},
			found: []string{"acts on node-ready/RemediationRequired=False, but remediation.actions sets it to True, so it never acts"},
			noted: []string{"remediation.neverVerifiedOnly is on"}},
		"on one that nobody sets": {config: "{}", others: []runtime.Object{
			other(medik8s, "NodeHealthCheck", "", "all", acts("unhealthyConditions", on("node-ready/RemediationRequired", "True")))},
			found: []string{"which no entry of remediation.actions sets, so it never acts"}},
		"on the accusation itself": {config: suspicion, others: []runtime.Object{
			other(capi, "MachineHealthCheck", "prod", "workers", acts("unhealthyConditions", on("KernelDeadlock", "True")))},
			noted: []string{"acts on the condition KernelDeadlock, which also makes nodes suspect"}},
		"a rule that evicts": {config: "{}", others: []runtime.Object{
			other("readiness.node.x-k8s.io/v1alpha1", "NodeReadinessRule", "", "evicts", map[string]any{"enforcementMode": "continuous",
				"taint": map[string]any{"effect": "NoExecute"}, "conditions": []any{map[string]any{"type": "node-ready/Verified", "requiredStatus": "True"}}}),
			other("readiness.node.x-k8s.io/v1alpha1", "NodeReadinessRule", "", "closes", map[string]any{"enforcementMode": "continuous",
				"taint": map[string]any{"effect": "NoSchedule"}, "conditions": []any{map[string]any{"type": "node-ready/Verified", "requiredStatus": "True"}}})},
			noted: []string{"NodeReadinessRule evicts evicts the pods of a node whenever node-ready/Verified is not True"}},
		"an object that may be created":   {config: job},
		"that the account may not create": {config: job, denied: []string{"create", "delete"}, found: []string{"service account own/account may not create, delete jobs.batch in repair, which remediation.actions[0].object needs"}},
		"in a dry run":                    {config: job, denied: []string{"create"}, dryRun: true},
		"in no such namespace":            {config: strings.Replace(job, "repair", "none", 1), found: []string{"namespace none, in which remediation.actions[0].object creates a Job, does not exist"}},
		"without a namespace":             {config: strings.Replace(job, "metadata: {namespace: repair}", "spec: {}", 1), found: []string{"creates a Job, which is namespaced, and its template has no namespace"}},
		"of no such kind":                 {config: strings.Replace(job, "Job", "Hammer", 1), found: []string{"the API server does not serve kind Hammer in batch/v1"}},
		"of no such group":                {config: strings.Replace(job, "batch/v1", "none.example/v1", 1), found: []string{"the API server does not serve kind Job in none.example/v1"}},
		"cluster-scoped, in a namespace": {config: strings.Replace(strings.Replace(job, "batch/v1", medik8s, 1), "Job", "NodeHealthCheck", 1),
			found: []string{"creates a NodeHealthCheck, which is cluster-scoped, in namespace repair"}},
		"actions that are off": {config: strings.Replace(job, "deleteFailedNodes: true, ", "", 1), noted: []string{"deleteFailedNodes is off, so no action is taken"}},
		"a detector that runs": {config: suspicion, nodes: []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "KernelDeadlock", Status: "False"}}}}}},
		"one that does not": {config: suspicion, nodes: []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
			noted: []string{"no node has the condition KernelDeadlock, which reverify.onConditions names"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(append(test.nodes, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "repair"}})...)
			client.PrependReactor("create", "subjectaccessreviews", func(a kubernetestesting.Action) (bool, runtime.Object, error) {
				review := a.(kubernetestesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
				review.Status.Allowed = !slices.Contains(test.denied, review.Spec.ResourceAttributes.Verb)
				return true, review, nil
			})
			client.Discovery().(*discoveryfake.FakeDiscovery).Resources = []*metav1.APIResourceList{
				{GroupVersion: "batch/v1", APIResources: []metav1.APIResource{{Name: "jobs", Kind: "Job", Namespaced: true}, {Name: "jobs/status", Kind: "Job", Namespaced: true}}},
				{GroupVersion: capi, APIResources: []metav1.APIResource{{Name: "machinehealthchecks", Kind: "MachineHealthCheck", Namespaced: true}}},
				{GroupVersion: medik8s, APIResources: []metav1.APIResource{{Name: "nodehealthchecks", Kind: "NodeHealthCheck"}}},
			}
			v := &invocation{cluster: &cluster{client: client, config: configuration(t, test.config),
				dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
					{Group: "cluster.x-k8s.io", Version: "v1beta1", Resource: "machinehealthchecks"}:        "MachineHealthCheckList",
					{Group: "remediation.medik8s.io", Version: "v1alpha1", Resource: "nodehealthchecks"}:    "NodeHealthCheckList",
					{Group: "readiness.node.x-k8s.io", Version: "v1alpha1", Resource: "nodereadinessrules"}: "NodeReadinessRuleList",
				}, test.others...)}}
			d := diagnosis{check: "repair", overview: overview{DryRun: test.dryRun, pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "own"},
				Spec: corev1.PodSpec{ServiceAccountName: "account"}}}}}
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
			matches("found", d.Findings, test.found)
			matches("noted", d.Notes, test.noted)
		})
	}
}
