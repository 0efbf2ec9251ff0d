package kubectlplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/nodepool"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
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
			d.found("dns", fmt.Sprintf("every node has a taint that the pods of Service %s do not tolerate: "+
				"cluster DNS can run nowhere, so no worker can resolve a name", service),
				"keep a group of nodes without the gating taint, or let DNS tolerate it (docs/autoscalers.md)")
		}
		return nil
	}
	d.note("dns", "no Service of cluster DNS with a selector is known: whether DNS can run is not checked", "")
	return nil
}

// toleratesAny reports whether the pod tolerates the taints of some node.
func toleratesAny(p *corev1.Pod, nodes []corev1.Node) bool {
	keepsOff := func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}
	return slices.ContainsFunc(nodes, func(n corev1.Node) bool {
		_, found := schedulinghelpers.FindMatchingUntoleratedTaint(logr.Discard(), n.Spec.Taints, p.Spec.Tolerations,
			keepsOff, true)
		return !found
	})
}

// examineAutoscaler looks for gating taints that who makes the nodes does not expect to go away.
func examineAutoscaler(ctx context.Context, v *invocation, d *diagnosis) error {
	gating := v.cluster.config.Vocabulary().Gating
	pools, err := v.cluster.nodePools(ctx)
	if err != nil {
		return err
	}
	for _, u := range decide.UnknownTaints(gating, pools) {
		d.found("autoscaler", u.String(), fmt.Sprintf("add {key: %s, value: %q, effect: %s} to "+
			"spec.template.spec.startupTaints (docs/autoscalers.md)", u.Taint.Key, u.Taint.Value, u.Taint.Effect))
	}
	for _, p := range pools {
		if p.DoNotDisrupt && v.cluster.config.NodeManagement.DeleteFailedNodes {
			d.found("autoscaler", fmt.Sprintf("the template of NodePool %s sets %s: nothing of that pool is ever deleted",
				p.Name, owner.AnnotationDoNotDisrupt),
				"remove the annotation from spec.template.metadata.annotations if failed nodes are to be replaced")
		}
		for _, t := range gating {
			if decide.HasTaint(p.Taints, t) {
				d.found("autoscaler", fmt.Sprintf("NodePool %s has the gating taint %s:%s under taints, which are permanent: "+
					"Karpenter launches its nodes only for pods that tolerate it", p.Name, t.Key, t.Effect),
					"move it to spec.template.spec.startupTaints")
			}
		}
	}
	return v.examineClusterAutoscaler(ctx, d)
}

// nodePools reads Karpenter's NodePools; none where Karpenter is not there.
func (c *cluster) nodePools(ctx context.Context) ([]decide.NodePool, error) {
	carried := nodepool.Carried{}
	err := each(ctx, c.client.CoreV1().Nodes().List, owner.LabelNodePool, func(n *corev1.Node) {
		carried.Add(n, c.config.Vocabulary().Gating)
	})
	if err != nil {
		return nil, err
	}
	var pools []decide.NodePool
	err = each(ctx, c.dynamic.Resource(nodepool.Resource).List, "", func(o *unstructured.Unstructured) {
		p := nodepool.Of(o)
		p.Carried = carried[p.Name]
		pools = append(pools, p)
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return pools, err
}

// autoscalerPods select the pods of Cluster Autoscaler, as its own manifests, its chart and clouds label them.
var autoscalerPods = []string{"app=cluster-autoscaler", "k8s-app=cluster-autoscaler",
	"app.kubernetes.io/name in (cluster-autoscaler,aws-cluster-autoscaler)"}

// autoscalerKnows are the prefixes of keys that Cluster Autoscaler takes for start-up taints
// (cluster-autoscaler/utils/taints/taints.go in k8s.io/autoscaler).
var autoscalerKnows = []string{"startup-taint.cluster-autoscaler.kubernetes.io/",
	"ignore-taint.cluster-autoscaler.kubernetes.io/"}

// examineClusterAutoscaler reads the flags of a Cluster Autoscaler that runs in the cluster. The flags of one that a
// cloud runs are not known.
func (v *invocation) examineClusterAutoscaler(ctx context.Context, d *diagnosis) error {
	var args []string
	for _, selector := range autoscalerPods {
		list, err := v.cluster.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx,
			metav1.ListOptions{LabelSelector: selector, Limit: 1})
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			for _, c := range p.Spec.Containers {
				args = append(append(args, c.Command...), c.Args...)
			}
		}
	}
	if len(args) == 0 {
		return nil
	}
	for _, t := range v.cluster.config.Vocabulary().Gating {
		known := slices.ContainsFunc(autoscalerKnows, func(prefix string) bool { return strings.HasPrefix(t.Key, prefix) })
		for _, a := range args {
			flag, value, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
			switch flag {
			case "startup-taint", "ignore-taint":
				known = known || value == t.Key
			case "startup-taint-prefix":
				known = known || value != "" && strings.HasPrefix(t.Key, value)
			}
		}
		if !known {
			d.found("autoscaler", fmt.Sprintf("Cluster Autoscaler does not know the gating taint %s: "+
				"it launches more nodes than are needed", t.Key), fmt.Sprintf("start it with --startup-taint=%s, "+
				"or use a key with the prefix %s (docs/autoscalers.md)", t.Key, autoscalerKnows[0]))
		}
	}
	return nil
}
