// Package webhook taints nodes at their creation where the API server has no MutatingAdmissionPolicy, and looks after the
// certificates that this takes.
package webhook

import (
	"context"
	"encoding/json"
	"fmt"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// Tainter answers the API server about nodes that are created. It refuses none: what it cannot read it leaves alone, with a
// warning, since an answer that is an error would keep the node out whatever the webhook's failurePolicy.
type Tainter struct {
	Config *config.Config
}

// Handle is the admission.Handler.
func (t *Tainter) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.Resource.Group != "" || req.Resource.Resource != "nodes" || req.SubResource != "" {
		return admission.Allowed("not a node at its creation")
	}
	var n corev1.Node
	if err := json.Unmarshal(req.Object.Raw, &n); err != nil {
		return admission.Allowed("").WithWarnings(fmt.Sprintf("kube-node-ready cannot read the node and adds no taint: %v", err))
	}
	taints := decide.BirthTaints(&n, t.Config)
	if len(taints) == 0 {
		return admission.Allowed("no taint to add")
	}
	ctrl.LoggerFrom(ctx).Info("tainting a node at its creation", "node", req.Name, "taints", taints)
	// By hand, and not by comparing two encodings of the node: ours would lack the fields that an older client does not know.
	var patch []jsonpatch.Operation
	if len(n.Spec.Taints) == 0 {
		patch = append(patch, jsonpatch.NewOperation("add", "/spec/taints", []corev1.Taint{}))
	}
	for _, taint := range taints {
		patch = append(patch, jsonpatch.NewOperation("add", "/spec/taints/-", taint))
	}
	return admission.Patched("", patch...)
}
