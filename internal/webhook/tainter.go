// Package webhook taints nodes at their creation where the API server has no MutatingAdmissionPolicy, and looks after the
// certificates that this takes.
package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// Tainter answers the API server about nodes that are created. It refuses none: what it cannot read it leaves alone, with a
// warning, since an answer that is an error would keep the node out whatever the webhook's failurePolicy.
type Tainter struct {
	Config *config.Config
	// Rules are the NodeReadinessRules, as far as they are known; nil where none are served.
	Rules func() []rule.Rule
}

// Handle is the admission.Handler for the gating taints.
func (t *Tainter) Handle(ctx context.Context, req admission.Request) admission.Response {
	return answer(ctx, req, func(n *corev1.Node) marks.RuleChange {
		return marks.RuleChange{Add: decide.TaintsOnCreation(n, t.Config)}
	})
}

// HandleRules is the admission.Handler for the taints of rules. They have a webhook of their own, and so does the API server
// ask for the gating taints whatever becomes of them.
func (t *Tainter) HandleRules(ctx context.Context, req admission.Request) admission.Response {
	return answer(ctx, req, func(n *corev1.Node) marks.RuleChange {
		return rule.OnCreation(n, t.Rules(), t.Config.Vocabulary().Gating)
	})
}

// answer has the API server add what is to be added to a node at its creation.
func answer(ctx context.Context, req admission.Request, on func(*corev1.Node) marks.RuleChange) admission.Response {
	if req.Operation != admissionv1.Create || req.Resource.Group != "" || req.Resource.Resource != "nodes" || req.SubResource != "" {
		return admission.Allowed("not a node at its creation")
	}
	var n corev1.Node
	if err := json.Unmarshal(req.Object.Raw, &n); err != nil {
		return admission.Allowed("").WithWarnings(fmt.Sprintf("kube-node-ready cannot read the node and adds no taint: %v", err))
	}
	change := on(&n)
	if change.Empty() {
		return admission.Allowed("no taint to add")
	}
	ctrl.LoggerFrom(ctx).Info("tainting a node at its creation", "node", req.Name, "taints", change.Add)
	// By hand, and not by comparing two encodings of the node: ours would lack the fields that an older client does not know.
	var patch []jsonpatch.Operation
	if len(n.Spec.Taints) == 0 {
		patch = append(patch, jsonpatch.NewOperation("add", "/spec/taints", []corev1.Taint{}))
	}
	for _, taint := range change.Add {
		patch = append(patch, jsonpatch.NewOperation("add", "/spec/taints/-", taint))
	}
	if change.Owned != nil {
		if n.Annotations == nil {
			patch = append(patch, jsonpatch.NewOperation("add", "/metadata/annotations", map[string]string{}))
		}
		patch = append(patch, jsonpatch.NewOperation("add", "/metadata/annotations/"+strings.ReplaceAll(marks.AnnotationRules, "/", "~1"), change.Owned.Encode()))
	}
	return admission.Patched("", patch...)
}
