package clock

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// defaultMaxSkewSeconds is below what breaks tokens, leases and TLS, and above what the
// whole seconds of a Date header can show.
const defaultMaxSkewSeconds = 5

// Settings compares this node's clock with the API server's.
type Settings struct {
	// MaxSkewSeconds either way. Default 5.
	MaxSkewSeconds *int32 `json:"maxSkewSeconds,omitempty"`
}

// Validate reports every fault of the settings.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	return check.Optional(p.Child("maxSkewSeconds"), s.MaxSkewSeconds, 1, 86_400)
}

// NeedsAPI reports whether the Kubernetes API is called: always.
func (s *Settings) NeedsAPI() bool { return true }
