package config

import (
	"encoding/json"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Admission taints nodes at their creation, for clusters whose autoscaler cannot.
type Admission struct {
	// Mode is how a node gets the taints of its profile at its creation: policy (a MutatingAdmissionPolicy inside the API
	// server, Kubernetes 1.36), webhook (served by every replica of the controller), auto (policy where the API server has
	// it, else webhook) or off. Default off.
	Mode AdmissionMode `json:"mode,omitempty"`
	// Backfill taints a node that slipped past: one that was never verified, is younger than backfillMaxAge and runs no
	// ordinary pod. The controller does that at any time, whatever the mode; a dry run never does. Default false.
	Backfill bool `json:"backfill,omitempty"`
	// BackfillMaxAge is up to which age a node that slipped past is tainted. Default 10m.
	BackfillMaxAge metav1.Duration `json:"backfillMaxAge,omitempty"`
	// Webhook is how the webhook is served, where mode is webhook.
	Webhook Webhook `json:"webhook"`
}

// Webhook is how the webhook is served. The objects that it takes are the chart's.
type Webhook struct {
	// Port of the webhook's server. Default 9443.
	Port int32 `json:"port,omitempty"`
	// Name of its objects: the MutatingWebhookConfiguration and, in the controller's own namespace, the Service and the
	// Secret. Default kube-node-ready-webhook.
	Name string `json:"name,omitempty"`
	// FailurePolicy is what becomes of a node for which the webhook does not answer: Ignore creates it without the taints,
	// Fail refuses it, and the controller may then have no node to run on. Default Ignore.
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`
	// CertificateDir holds tls.crt and tls.key that somebody else renews, as cert-manager does; they are read again when
	// they change. Default: none, and the controller makes and renews certificates, in the Secret.
	CertificateDir string `json:"certificateDir,omitempty"`
	// CertificateLifetime of those that the controller makes; they are renewed when a third of it is left. Default 2160h.
	CertificateLifetime metav1.Duration `json:"certificateLifetime,omitempty"`
}

// FailurePolicy is what becomes of a node for which the webhook does not answer.
type FailurePolicy string

// The FailurePolicy settings, as admissionregistration.k8s.io names them.
const (
	FailureIgnored FailurePolicy = "Ignore"
	FailureFails   FailurePolicy = "Fail"
)

// minCertificateLifetime leaves a rotation time to be learnt of.
const minCertificateLifetime = 30 * time.Second

// AdmissionMode is how nodes are tainted at their creation.
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

func (a *Admission) validate(p *field.Path) field.ErrorList {
	faults := oneOf(p.Child("mode"), a.Mode, AdmissionOff, AdmissionAuto, AdmissionPolicy, AdmissionWebhook)
	if a.BackfillMaxAge.Duration < time.Second {
		faults = append(faults, field.Invalid(p.Child("backfillMaxAge"), a.BackfillMaxAge.Duration.String(), "must be at least 1s"))
	}
	return append(faults, a.Webhook.validate(p.Child("webhook"))...)
}

func (w *Webhook) validate(p *field.Path) field.ErrorList {
	faults := inRange(p.Child("port"), w.Port, 1, 65535)
	faults = append(faults, named(p.Child("name"), w.Name, validation.IsDNS1035Label)...) // a Service's
	faults = append(faults, oneOf(p.Child("failurePolicy"), w.FailurePolicy, FailureIgnored, FailureFails)...)
	if w.CertificateDir != "" && !filepath.IsAbs(w.CertificateDir) {
		faults = append(faults, field.Invalid(p.Child("certificateDir"), w.CertificateDir, "must be an absolute path"))
	}
	if w.CertificateLifetime.Duration < minCertificateLifetime {
		faults = append(faults, field.Invalid(p.Child("certificateLifetime"), w.CertificateLifetime.Duration.String(), "must be at least "+minCertificateLifetime.String()))
	}
	return faults
}
