package kubernetesapi

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// The ways to the API server.
const (
	// ViaAddress is KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
	ViaAddress = "address"
	// ViaDNS is the Service's DNS name, kubernetes.default.svc.
	ViaDNS = "dns"
)

// Settings calls the API server as the worker's service account.
type Settings struct {
	// Path that must answer 200: /readyz (default), /livez or /version.
	Path string `json:"path,omitempty"`
	// Via is how the API server is reached, each way on its own: address
	// (KUBERNETES_SERVICE_HOST) and dns (kubernetes.default.svc). Default both.
	Via []string `json:"via,omitempty"`
	// ExpectUser is the user name that a SelfSubjectReview must return. Default: the
	// service account that the token names.
	ExpectUser string `json:"expectUser,omitempty"`
}

// Validate reports every fault of the settings.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	faults := check.OneOf(p.Child("path"), s.Path, []string{"/readyz", "/livez", "/version"})
	return append(faults, check.SetOf(p.Child("via"), s.Via, []string{ViaAddress, ViaDNS})...)
}

// NeedsAPI reports whether the Kubernetes API is called: always.
func (s *Settings) NeedsAPI() bool { return true }
