package config

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
}

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
	if len(faults) == 0 && a.Mode != AdmissionOff {
		faults = append(faults, field.Invalid(p.Child("mode"), a.Mode, "this release does not taint nodes at their creation; set it to off"))
	}
	if a.BackfillMaxAge.Duration < time.Second {
		faults = append(faults, field.Invalid(p.Child("backfillMaxAge"), a.BackfillMaxAge.Duration.String(), "must be at least 1s"))
	}
	return faults
}
