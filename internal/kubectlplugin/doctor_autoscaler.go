package kubectlplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/nodepool"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// karpenterSince is the first release of Karpenter that takes a taint whose key has marks.RuleTaintPrefix for a
// start-up taint until the node is initialised (KnownEphemeralTaintKeyPrefixes in pkg/scheduling/taints.go, which 1.12
// lacks).
var karpenterSince = version.MustParseGeneric("1.13")

// clusterAutoscalerKnows are the prefixes of keys that Cluster Autoscaler takes for start-up taints
// (cluster-autoscaler/utils/taints/taints.go in k8s.io/autoscaler).
var clusterAutoscalerKnows = []string{marks.RuleAutoscalerPrefix, "ignore-taint.cluster-autoscaler.kubernetes.io/"}

// clusterAutoscalerPods select the pods of Cluster Autoscaler, as its own manifests, its chart and clouds label them.
var clusterAutoscalerPods = []string{"app=cluster-autoscaler", "k8s-app=cluster-autoscaler",
	"app.kubernetes.io/name in (cluster-autoscaler,aws-cluster-autoscaler)"}

func knownToKarpenter(t marks.Taint) bool { return strings.HasPrefix(t.Key, marks.RuleTaintPrefix) }

func knownToClusterAutoscaler(t marks.Taint) bool {
	return slices.ContainsFunc(clusterAutoscalerKnows, func(p string) bool { return strings.HasPrefix(t.Key, p) })
}

// gates are the gating taints on the nodes of each autoscaler: those that the nodes carry, and those that new ones like
// them get on creation. elsewhere are those on nodes that are not Karpenter's. both is a node that carries the keys of
// both autoscalers; empty for none.
func (c *cluster) gates(ctx context.Context) (pools nodepool.Carried, elsewhere []marks.Taint, both string, err error) {
	pools = nodepool.Carried{}
	gating := c.config.Vocabulary().Gating
	err = each(ctx, c.client.CoreV1().Nodes().List, "", func(n *corev1.Node) {
		pools.Add(n, gating)
		var taints []marks.Taint
		for _, t := range n.Spec.Taints {
			if c.config.Vocabulary().Gates(t) {
				taints = append(taints, marks.Taint{Key: t.Key, Effect: t.Effect})
			}
		}
		if slices.ContainsFunc(taints, knownToKarpenter) && slices.ContainsFunc(taints, knownToClusterAutoscaler) {
			both = n.Name
		}
		if n.Labels[owner.LabelNodePool] != "" {
			return
		}
		if c.config.Admission.Mode != config.AdmissionOff {
			taints = append(taints, decide.TaintsOnCreation(n, c.config)...)
		}
		elsewhere = append(elsewhere, taints...)
	})
	return pools, elsewhere, both, err
}

// examineAutoscaler looks for gating taints that the autoscaler does not expect to go away.
func examineAutoscaler(ctx context.Context, v *invocation, d *diagnosis) error {
	carried, elsewhere, both, err := v.cluster.gates(ctx)
	if err != nil {
		return err
	}
	if both != "" {
		d.found(fmt.Sprintf("node %s has gating taints with the keys of both Karpenter and Cluster "+
			"Autoscaler: each treats the other's taint as permanent and launches more nodes than are needed", both),
			"create a profile with one key for the nodes of each autoscaler (docs/guides/zero-configuration.md)")
	}
	pools, err := v.cluster.nodePools(ctx, carried)
	if err != nil {
		return err
	}
	gating := v.cluster.config.Vocabulary().Gating
	for _, u := range decide.UnknownTaints(gating, pools) {
		d.found(u.String(), startupTaintFix(u.Taint))
	}
	for _, p := range pools {
		if p.DoNotDisrupt && v.cluster.config.NodeManagement.DeleteFailedNodes {
			d.found(fmt.Sprintf("the template of NodePool %s sets %s: nothing of that pool is ever deleted",
				p.Name, owner.AnnotationDoNotDisrupt),
				"remove the annotation from spec.template.metadata.annotations if kube-node-ready should replace failed nodes")
		}
		for _, t := range gating {
			if decide.HasTaint(p.Taints, t) {
				d.found(fmt.Sprintf("NodePool %s has the gating taint %s under taints, which are permanent: "+
					"Karpenter launches its nodes only for pods that tolerate it", p.Name, t.ID()),
					"move it to spec.template.spec.startupTaints")
			}
		}
	}
	return errors.Join(v.examineKarpenterVersion(ctx, d, gating, pools),
		v.examineClusterAutoscaler(ctx, d, gating, len(pools) > 0, elsewhere))
}

func startupTaintFix(t marks.Taint) string {
	return fmt.Sprintf("add {key: %s, value: %q, effect: %s} to spec.template.spec.startupTaints "+
		"(docs/guides/autoscalers.md)", t.Key, t.Value, t.Effect)
}

// nodePools reads Karpenter's NodePools; none where Karpenter is not installed.
func (c *cluster) nodePools(ctx context.Context, carried nodepool.Carried) (pools []decide.NodePool, err error) {
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

// examineKarpenterVersion looks for a Karpenter that is too old to know a gating taint by its key. Where every NodePool
// lists the taint in its startupTaints, any release knows it.
func (v *invocation) examineKarpenterVersion(ctx context.Context, d *diagnosis, gating []marks.Taint,
	pools []decide.NodePool) error {
	byKey := slices.DeleteFunc(slices.Clone(gating), func(t marks.Taint) bool {
		return !knownToKarpenter(t) || !slices.ContainsFunc(pools, func(p decide.NodePool) bool {
			return !decide.HasTaint(p.Startup, t)
		})
	})
	if len(byKey) == 0 {
		return nil
	}
	installed, source, err := v.cluster.karpenterVersion(ctx)
	if err != nil {
		return err
	}
	for _, t := range byKey {
		if installed == nil {
			d.note(fmt.Sprintf("the version of Karpenter is unknown: before %s, it does not know the gating "+
				"taint %s by its key, and launches more nodes than are needed", karpenterSince, t.Key),
				"check the version; if it is older, "+startupTaintFix(t))
		} else if installed.LessThan(karpenterSince) {
			d.found(fmt.Sprintf("Karpenter %s (%s) does not know the gating taint %s by its key: "+
				"it launches more nodes than are needed", installed, source, t.Key),
				fmt.Sprintf("upgrade Karpenter to %s or later, or %s", karpenterSince, startupTaintFix(t)))
		}
	}
	return nil
}

// karpenterImage ends the repository of the image whose tag is Karpenter's own version: that of the provider for AWS,
// which Karpenter's releases number. Other providers have numbers of their own.
const karpenterImage = "karpenter/controller"

// karpenterVersion is the version of the Karpenter that runs in the cluster, and the source it was read from. The
// source is the image tag in Karpenter's Deployment or, without a tag, the Deployment's label. It is nil if none is
// found, for example because a cloud runs Karpenter.
func (c *cluster) karpenterVersion(ctx context.Context) (found *version.Version, source string, err error) {
	list, err := c.client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=karpenter"})
	if err != nil {
		return nil, "", err
	}
	for _, d := range list.Items {
		for _, container := range d.Spec.Template.Spec.Containers {
			image, err := reference.ParseNormalizedNamed(container.Image)
			if err != nil || !strings.HasSuffix(image.Name(), karpenterImage) {
				continue
			}
			texts := []string{d.Labels["app.kubernetes.io/version"]}
			if tagged, ok := image.(reference.Tagged); ok {
				texts = slices.Insert(texts, 0, tagged.Tag())
			}
			for _, text := range texts {
				if parsed, err := version.ParseGeneric(text); err == nil {
					return parsed, "Deployment " + d.Namespace + "/" + d.Name, nil
				}
			}
		}
	}
	return nil, "", nil
}

// examineClusterAutoscaler reads the flags of a Cluster Autoscaler that runs in the cluster. The flags of one that a
// cloud runs are not known. A taint that Karpenter knows by its key is expected on Karpenter's nodes alone.
func (v *invocation) examineClusterAutoscaler(ctx context.Context, d *diagnosis, gating []marks.Taint, karpenter bool,
	elsewhere []marks.Taint) error {
	var args []string
	for _, selector := range clusterAutoscalerPods {
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
	for _, t := range gating {
		known := knownToClusterAutoscaler(t) || karpenter && knownToKarpenter(t) && !decide.HasTaint(elsewhere, t)
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
			d.found(fmt.Sprintf("Cluster Autoscaler does not know the gating taint %s: "+
				"it launches more nodes than are needed", t.Key), fmt.Sprintf("start it with --startup-taint=%s, "+
				"or use a key with the prefix %s (docs/guides/autoscalers.md)", t.Key, clusterAutoscalerKnows[0]))
		}
	}
	return nil
}
