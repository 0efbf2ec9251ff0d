// Package check holds what a check is: its specification, its validation, and what an
// attempt at it finds. It runs nothing, so that the controller can read and validate the
// checks without carrying the code that performs them.
package check

import "time"

// Type is a kind of check.
type Type string

// The check types. Each has a block of settings of the same name in Spec.
const (
	TypeDNS              Type = "dns"
	TypeKubernetesAPI    Type = "kubernetesAPI"
	TypeTCP              Type = "tcp"
	TypeHTTP             Type = "http"
	TypeServiceDiscovery Type = "serviceDiscovery"
	TypePeers            Type = "peers"
	TypeMTU              Type = "mtu"
	TypeClock            Type = "clock"
	TypeFile             Type = "file"
	TypeDisk             Type = "disk"
	TypeExec             Type = "exec"
)

// Severity is what a failing check means for the node.
type Severity string

const (
	// Required checks must pass for the node to be verified.
	Required Severity = "required"
	// Advisory checks are reported as warnings when they fail and hold nothing up.
	Advisory Severity = "warning"
)

// Defaults of the envelope.
const (
	// DefaultTimeoutSeconds bounds one attempt where neither the check nor
	// worker.checkTimeoutSeconds says otherwise.
	DefaultTimeoutSeconds = 10
	// DefaultAttempts is how often a failing check is tried.
	DefaultAttempts = 1
	// DefaultIntervalSeconds is the wait between two attempts.
	DefaultIntervalSeconds = 1
)

// Spec is one entry of worker.checks: the envelope that all types share, and the block of
// its type's own settings.
type Spec struct {
	// Name identifies the check in reports, events, metrics and dependsOn. Unique; at most 63
	// letters, digits, '-', '_' and '.'.
	Name string `json:"name"`
	// Type says what is checked, and which block below holds its settings.
	Type Type `json:"type"`
	// Severity is required (default) or warning.
	Severity Severity `json:"severity,omitempty"`
	// TimeoutSeconds bounds one attempt; at most the worker's. Default worker.checkTimeoutSeconds.
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// Attempts is how often the check is tried until it passes. Default 1.
	Attempts int32 `json:"attempts,omitempty"`
	// IntervalSeconds is the wait between two attempts. Default 1.
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`
	// DependsOn names checks that must pass first; otherwise this one is skipped.
	DependsOn []string `json:"dependsOn,omitempty"`

	DNS              *DNS              `json:"dns,omitempty"`
	KubernetesAPI    *KubernetesAPI    `json:"kubernetesAPI,omitempty"`
	TCP              *TCP              `json:"tcp,omitempty"`
	HTTP             *HTTP             `json:"http,omitempty"`
	ServiceDiscovery *ServiceDiscovery `json:"serviceDiscovery,omitempty"`
	Peers            *Peers            `json:"peers,omitempty"`
	MTU              *MTU              `json:"mtu,omitempty"`
	Clock            *Clock            `json:"clock,omitempty"`
	File             *File             `json:"file,omitempty"`
	Disk             *Disk             `json:"disk,omitempty"`
	Exec             *Exec             `json:"exec,omitempty"`
}

// Timeout bounds one attempt.
func (s Spec) Timeout() time.Duration {
	return seconds(s.TimeoutSeconds, DefaultTimeoutSeconds)
}

// Interval is the wait between two attempts.
func (s Spec) Interval() time.Duration {
	return seconds(s.IntervalSeconds, DefaultIntervalSeconds)
}

// MaxAttempts is how often the check is tried.
func (s Spec) MaxAttempts() int {
	if s.Attempts > 0 {
		return int(s.Attempts)
	}
	return DefaultAttempts
}

// IsRequired is true for a check that must pass for the node to be verified.
func (s Spec) IsRequired() bool { return s.Severity != Advisory }

func seconds(n int32, otherwise time.Duration) time.Duration {
	if n > 0 {
		return time.Duration(n) * time.Second
	}
	return otherwise * time.Second
}
