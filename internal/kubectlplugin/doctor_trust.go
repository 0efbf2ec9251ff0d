package kubectlplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// The doctor's checks of what a verification can be trusted for.

// repository is the chart's path of the image below a registry, which may be a mirror.
const repository = "kube-node-ready/kube-node-ready"

// examineImage looks for workers of another product: one that exits with 0 releases its node, whatever it checked.
func examineImage(ctx context.Context, v *invocation, d *diagnosis) error {
	if d.head.unlisted != nil {
		return d.head.unlisted
	}
	worker := v.cluster.config.Worker.Image.Repository
	own := strings.TrimSuffix(worker, "-worker")
	ours := own == repository || strings.HasSuffix(own, "/"+repository)
	for _, p := range d.head.pods {
		for _, c := range p.Spec.Containers {
			named, err := reference.ParseNamed(c.Image)
			ours = ours || err == nil && v.cluster.component == componentController && named.Name() == own
		}
	}
	if !ours {
		d.found("image", fmt.Sprintf("workers run the image %s, of another repository than the chart's: one that exits with 0 "+
			"releases its node without the checks of the configuration", worker),
			"leave worker.image empty, so that it follows controller.image; end a mirror's name in /"+repository)
	}
	events, err := v.cluster.core.Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		"involvedObject.kind": "Node", "reason": decide.EventReportMissing.Name, "reportingComponent": eventSource}.String()})
	if err != nil {
		return err
	}
	var nodes []string
	for _, e := range events.Items {
		nodes = append(nodes, e.InvolvedObject.Name)
	}
	slices.Sort(nodes)
	if nodes = slices.Compact(nodes); len(nodes) > 0 {
		d.found("image", fmt.Sprintf("workers passed without a report within the last hour, so nobody knows what they checked, "+
			"on %d nodes, %s among them", len(nodes), nodes[0]),
			"use the workers' image of the controller's version, then kubectl node-ready reverify NODE...")
	}
	return nil
}

// labelEnforce is the namespace's label of Pod Security admission.
const labelEnforce = "pod-security.kubernetes.io/enforce"

// examineToken says what a stolen token of the controller allows where no admission policy limits it.
func examineToken(ctx context.Context, v *invocation, d *diagnosis) error {
	if v.cluster.component == componentDaemonSet {
		return nil // its policy is always there
	}
	if d.head.unlisted != nil {
		return d.head.unlisted
	}
	selector := labels.Set{workerpod.LabelName: workerpod.Name}
	if pods := d.head.pods; len(pods) > 0 && pods[0].Labels[labelInstance] != "" {
		selector[labelInstance] = pods[0].Labels[labelInstance]
	}
	bindings, err := v.cluster.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx,
		metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(bindings.Items, func(b admissionv1.ValidatingAdmissionPolicyBinding) bool {
		return strings.HasSuffix(b.Spec.PolicyName, "-pods") && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
	}) {
		return nil
	}
	workers := v.cluster.namespace
	if workers == "" {
		if workers, err = v.cluster.controllers(ctx); err != nil {
			return err
		}
	}
	namespace, err := v.cluster.core.Namespaces().Get(ctx, workers, metav1.GetOptions{})
	if err != nil {
		return err
	}
	what, fix := stolen(namespace, v.cluster.config.NodeManagement.DeleteFailedNodes)
	d.note("token", what, fix)
	return nil
}

// labelInstance is the chart's label of the release.
const labelInstance = "app.kubernetes.io/instance"

// stolen says what a token of the controller allows who stole it, without the admission policies.
func stolen(workers *corev1.Namespace, deletes bool) (what, fix string) {
	what = "admissionPolicy is off: a stolen token of the controller can take any taint off any node"
	fix = "set admissionPolicy.enabled (docs/security.md)"
	if deletes {
		what += ", delete nodes and the objects that own them"
	}
	switch level := workers.Labels[labelEnforce]; level {
	case "restricted", "baseline":
		return what + fmt.Sprintf("; privileged pods are refused in namespace %s (Pod Security %s)", workers.Name, level), fix
	}
	return what + fmt.Sprintf(", and by a privileged pod in namespace %s, whose labels enforce no Pod Security, become "+
			"administrator of the cluster", workers.Name),
		fmt.Sprintf("kubectl label namespace %s %s=restricted; %s", workers.Name, labelEnforce, fix)
}
