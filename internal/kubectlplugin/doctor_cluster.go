package kubectlplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
)

// The doctor's checks of the cluster around the controller.

// examineDNS looks for cluster DNS that can run on no node. The workers resolve names, so no node would ever pass.
func examineDNS(ctx context.Context, v *invocation, d *diagnosis) error {
	var nodes []corev1.Node
	err := each(ctx, v.cluster.client.CoreV1().Nodes().List, "", func(n *corev1.Node) { nodes = append(nodes, *n) })
	if err != nil || len(nodes) == 0 {
		return err
	}
	for _, service := range dns.Services {
		namespace, name, _ := strings.Cut(service, "/")
		s, err := v.cluster.client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && len(s.Spec.Selector) == 0 {
			continue
		}
		if err != nil {
			return err
		}
		pods, err := v.cluster.client.CoreV1().Pods(namespace).List(ctx,
			metav1.ListOptions{LabelSelector: labels.Set(s.Spec.Selector).String()})
		if err != nil {
			return err
		}
		fits := func(p corev1.Pod) bool { return toleratesAny(&p, nodes) }
		if len(pods.Items) > 0 && !slices.ContainsFunc(pods.Items, fits) {
			d.found(fmt.Sprintf("every node has a taint that the pods of Service %s do not tolerate: "+
				"cluster DNS cannot run, so no worker can resolve a name", service),
				"keep a group of nodes without the gating taint, or let DNS tolerate it (docs/guides/autoscalers.md)")
		}
		return nil
	}
	d.note("found no Service of cluster DNS with a selector, so doctor does not check whether DNS can run", "")
	return nil
}

// toleratesAny reports whether the pod tolerates the taints of some node.
func toleratesAny(p *corev1.Pod, nodes []corev1.Node) bool {
	return slices.ContainsFunc(nodes, func(n corev1.Node) bool { return tolerates(p, n.Spec.Taints...) })
}
