package clock

// defaultMaxSkewSeconds is below what breaks tokens, leases and TLS, and above what the
// whole seconds of a Date header can show.
const defaultMaxSkewSeconds = 5

// Settings compares this node's clock with the API server's.
type Settings struct {
	// MaxSkewSeconds either way. Default 5.
	MaxSkewSeconds *int32 `json:"maxSkewSeconds,omitempty" minimum:"1" maximum:"86400"`
}

// NeedsAPI reports whether the Kubernetes API is called: always.
func (s *Settings) NeedsAPI() bool { return true }
