package config

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Admission taints nodes on creation, for clusters whose autoscaler cannot.
type Admission struct {
	// Mode is how a new node gets the taints of its profile: policy, webhook, auto or off. policy is a
	// MutatingAdmissionPolicy inside the API server (Kubernetes 1.36). The webhook is served by every replica of the
	// controller. With auto, it is policy if the API server has it, or else webhook. Default off.
	Mode AdmissionMode `json:"mode,omitempty" required:"" enum:"off auto policy webhook"`
	// Backfill taints a node that admission missed: one that was never verified, is younger than backfillMaxAge and runs
	// no ordinary pod. The controller does this at any time, whatever the mode, but not in a dry run. Default false.
	Backfill bool `json:"backfill,omitempty"`
	// BackfillMaxAge is the age up to which a node that admission missed is tainted. Default 10m.
	BackfillMaxAge metav1.Duration `json:"backfillMaxAge,omitempty" minimum:"1s"`
	// Webhook is how the webhook is served, if mode is webhook.
	Webhook Webhook `json:"webhook"`
}

// Webhook is how the webhook is served. The chart creates its objects.
type Webhook struct {
	// Port of the webhook's server. Default 9443.
	Port int32 `json:"port,omitempty" minimum:"1" maximum:"65535"`
	// Name of its objects: the MutatingWebhookConfiguration and, in the controller's own namespace, the Service and the
	// Secret. Default kube-node-ready-webhook.
	Name string `json:"name,omitempty" required:"" format:"dns-1035-label"`
	// FailurePolicy is what happens to a new node if the webhook does not answer. Ignore creates the node without the
	// taints. Fail rejects the node, so the controller may have no node to run on. Default Ignore.
	FailurePolicy string `json:"failurePolicy,omitempty" required:"" enum:"Ignore Fail"`
	// CertificateDir holds tls.crt and tls.key that another program renews, for example cert-manager. They are read again
	// when they change. Default none: the controller creates and renews certificates in the Secret.
	CertificateDir string `json:"certificateDir,omitempty" format:"absolute-path"`
	// CertificateLifetime of the certificates that the controller creates. They are renewed when a third of it is left.
	// Default 2160h.
	CertificateLifetime metav1.Duration `json:"certificateLifetime,omitempty" minimum:"30s"`
}

// AdmissionMode is how nodes are tainted on creation.
type AdmissionMode string

// The AdmissionMode settings.
const (
	AdmissionOff     AdmissionMode = "off"
	AdmissionAuto    AdmissionMode = "auto"
	AdmissionPolicy  AdmissionMode = "policy"
	AdmissionWebhook AdmissionMode = "webhook"
)

// UnmarshalJSON also reads false: to YAML 1.1, as which Helm reads values, a plain off is a boolean.
func (m *AdmissionMode) UnmarshalJSON(data []byte) error {
	if string(data) == "false" {
		*m = AdmissionOff
		return nil
	}
	return json.Unmarshal(data, (*string)(m))
}
