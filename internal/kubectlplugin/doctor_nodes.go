package kubectlplugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// settleTime is how old a node must be to count as closed in examineNodes. A younger one may be verified soon.
const settleTime = 10 * time.Minute

// noCriticalPods is a part of the API server's error where its configuration limits a priority class to namespaces with
// a ResourceQuota for it, and the namespace has none (k8s.io/apiserver/pkg/admission/plugin/resourcequota).
const noCriticalPods = "insufficient quota to match these scopes"

// examineNodes looks for what keeps many nodes from being verified: worker pods that the API server rejects, and a
// fleet of which at least half is closed.
func examineNodes(ctx context.Context, v *invocation, d *diagnosis) error {
	all, err := v.cluster.nodes(ctx, "")
	if err != nil {
		return err
	}
	var verified int
	var refused, closed, other []nodeState
	for _, s := range all {
		if s.in.Selected && len(s.in.Node.OtherEffect) > 0 {
			other = append(other, s)
		}
		if !decide.Eligible(s.in) || s.in.Node.Deleting {
			continue
		}
		r := s.in.Node.Record
		rejected := r.LastOutcome == attempt.Inconclusive && r.LastReason == attempt.ReasonPodRefused
		if rejected && decide.NeedsVerification(s.in, v.now) {
			refused = append(refused, s)
		}
		switch {
		case s.in.Node.Gated && v.now.Sub(s.node.CreationTimestamp.Time) >= settleTime:
			closed = append(closed, s)
		case !s.in.Node.Gated && s.in.Node.Labelled:
			verified++
		}
	}
	if len(refused) > 0 {
		fix := "change what the message names: a quota, an admission policy or webhook, a namespace or service account " +
			"(docs/operate/runbooks/KubeNodeReadyWorkersInconclusive.md)"
		if strings.Contains(refused[0].in.Node.Record.LastMessage, noCriticalPods) {
			fix = "no ResourceQuota of the namespace admits pods of the system-* priority classes, as on GKE: set " +
				"criticalPodsQuota.enabled to true (docs/guides/autoscalers.md)"
		}
		d.found(fmt.Sprintf("the API server rejects the worker pods of %d of %d nodes, among them %s: %s", len(refused),
			len(all), refused[0].node.Name, refused[0].summary(v.now).Why), fix)
	}
	if len(other) > 0 {
		d.found(fmt.Sprintf("%d of %d nodes carry the key of a gating taint with another effect, among them %s: %s",
			len(other), len(all), other[0].node.Name, otherEffect(other[0])),
			"make the effects in nodeManagement.taints and in what sets the taint (kubelet, NodePool, node group) the same, "+
				"and remove the taint from these nodes: kubectl taint nodes NODE KEY:EFFECT-")
	}
	if len(closed) > 0 && len(closed) >= verified {
		d.found(fmt.Sprintf("%d nodes older than %s are closed by a gating taint, and %d are verified and open; %s is "+
			"closed: %s", len(closed), settleTime, verified, closed[0].node.Name, closed[0].summary(v.now).Why),
			"find what they share: kubectl node-ready status, then explain NODE; to open a node without verification, see "+
				"docs/faq.md (a node is tainted and I need it now)")
	}
	return nil
}

// otherEffect says what becomes of the taints of a node that have a gating key and gate nothing.
func otherEffect(s nodeState) string {
	var ids []string
	for _, t := range s.in.Node.OtherEffect {
		ids = append(ids, t.ID().String())
	}
	return strings.Join(ids, ", ") + " gates nothing here, and nobody removes it"
}
