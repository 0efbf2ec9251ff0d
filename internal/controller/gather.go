package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Names of the cache's indexes on worker pods.
const (
	indexNodeUID = "worker/node-uid"
	indexGroup   = "worker/probe-group"
)

func index(ctx context.Context, i client.FieldIndexer) error {
	for name, label := range map[string]string{indexNodeUID: workerpod.LabelNodeUID, indexGroup: workerpod.LabelProbeGroup} {
		if err := i.IndexField(ctx, &corev1.Pod{}, name, func(o client.Object) []string {
			if v := o.GetLabels()[label]; v != "" {
				return []string{v}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// gather observes a node and its worker pods.
func (r *Reconciler) gather(ctx context.Context, n *corev1.Node) (decide.Input, error) {
	in := observe(ctx, r.Config, n)
	pods, err := PodsOf(ctx, r.Client, r.Builder.Namespace, in.Node)
	if err != nil {
		return in, err
	}
	in.Pods = pods
	in.Lost = r.lost.of(in.Node.UID)
	for _, w := range r.Prerequisites.Unmet(n, in.Profile.Prerequisites) {
		in.Waiting = append(in.Waiting, w.Why)
	}
	return in, nil
}

// Observe is what decisions need of a node apart from its pods and prerequisites.
func observe(ctx context.Context, cfg *config.Config, n *corev1.Node) decide.Input {
	in := decide.Input{Config: cfg, Profile: cfg.For(n.Labels), Selected: cfg.Selects(n.Labels)}
	facts, err := node.Observe(n, in.Profile.Taints, cfg.NodeManagement.VerifiedLabel)
	if err != nil {
		log.FromContext(ctx).Error(err, "record refused", "node", n.Name)
	}
	in.Node = facts
	return in
}

// PodsOf lists our pods on a node. Pods that only look like ours are left out.
func PodsOf(ctx context.Context, reader client.Reader, namespace string, n node.Facts) ([]workerpod.Observation, error) {
	var list corev1.PodList
	if err := reader.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{indexNodeUID: n.UID}); err != nil {
		return nil, err
	}
	t := workerpod.Target{Name: n.Name, UID: n.UID}
	var out []workerpod.Observation
	for i := range list.Items {
		if workerpod.Ours(&list.Items[i], namespace, t) {
			out = append(out, workerpod.Observe(&list.Items[i]))
		}
	}
	return out, nil
}

// fleet observes all nodes that are verified at all.
func (r *Reconciler) fleet(ctx context.Context) ([]decide.Member, error) {
	var list corev1.NodeList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var members []decide.Member
	for i := range list.Items {
		if in := observe(ctx, r.Config, &list.Items[i]); decide.Subject(in) {
			members = append(members, decide.MemberOf(in.Node))
		}
	}
	return members, nil
}

// probes lists the probes that speak for a node's failures, wherever they run.
func (r *Reconciler) probes(ctx context.Context, group string) ([]workerpod.Observation, error) {
	var list corev1.PodList
	if err := r.Client.List(ctx, &list, client.InNamespace(r.Builder.Namespace), client.MatchingFields{indexGroup: group}); err != nil {
		return nil, err
	}
	var out []workerpod.Observation
	for i := range list.Items {
		p := &list.Items[i]
		t := workerpod.Target{Name: p.Annotations[workerpod.AnnotationNode], UID: p.Labels[workerpod.LabelNodeUID]}
		if workerpod.Ours(p, r.Builder.Namespace, t) && p.Labels[workerpod.LabelPurpose] == workerpod.PurposeProbe {
			out = append(out, workerpod.Observe(p))
		}
	}
	return out, nil
}
