// Package webhook taints nodes on creation if the API server has no MutatingAdmissionPolicy, and manages the webhook's
// certificates.
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

// Tainter answers the API server's reviews of new nodes. It refuses none: it leaves a node alone that it cannot read,
// and returns a warning. An error as the answer would keep the node out, whatever the webhook's failurePolicy.
type Tainter struct {
	Config *config.Config
	// Rules returns the known NodeReadinessRules; nil if rules are not served.
	Rules func() []rule.Rule
}

// Handle is the admission.Handler for the gating taints.
func (t *Tainter) Handle(ctx context.Context, req admission.Request) admission.Response {
	return answer(ctx, req, func(n *corev1.Node) marks.RuleChange {
		return marks.RuleChange{Add: decide.TaintsOnCreation(n, t.Config)}
	})
}

// HandleRules is the admission.Handler for the taints of rules. They have their own webhook, so the API server asks for
// the gating taints even if that webhook fails.
func (t *Tainter) HandleRules(ctx context.Context, req admission.Request) admission.Response {
	return answer(ctx, req, func(n *corev1.Node) marks.RuleChange {
		return rule.OnCreation(n, t.Rules(), t.Config.Vocabulary().Gating)
	})
}

// answer returns a patch that adds the taints to a new node.
func answer(ctx context.Context, req admission.Request, on func(*corev1.Node) marks.RuleChange) admission.Response {
	isNode := req.Resource.Group == "" && req.Resource.Resource == "nodes" && req.SubResource == ""
	if req.Operation != admissionv1.Create || !isNode {
		return admission.Allowed("not the creation of a node")
	}
	var n corev1.Node
	if err := json.Unmarshal(req.Object.Raw, &n); err != nil {
		warning := fmt.Sprintf("kube-node-ready cannot read the node and adds no taint: %v", err)
		return admission.Allowed("").WithWarnings(warning)
	}
	change := on(&n)
	if change.Empty() {
		return admission.Allowed("no taint to add")
	}
	ctrl.LoggerFrom(ctx).Info("tainting a node on creation", "node", req.Name, "taints", change.Add)
	// The patch does not compare two encodings of the node: ours would lack the fields that an older client does not know.
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
		path := "/metadata/annotations/" + strings.ReplaceAll(marks.AnnotationRules, "/", "~1")
		patch = append(patch, jsonpatch.NewOperation("add", path, change.Owned.Encode()))
	}
	return admission.Patched("", patch...)
}
