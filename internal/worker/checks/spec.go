package checks

import (
	"cmp"
	"time"

	"k8s.io/utils/ptr"
)

// Type is a kind of check: one of its Values.
type Type string

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

// Spec is one entry of worker.checks: the envelope that all types share, and the settings of its type.
type Spec struct {
	// Name identifies the check in reports, events, metrics and dependsOn. Unique.
	Name string `json:"name" required:"a name that is unique in the list" format:"check-name"`
	// Type says what is checked, and which key below holds its settings.
	Type Type `json:"type" required:""`
	// Severity of a failure: with warning it is reported and holds nothing up. Default required.
	Severity Severity `json:"severity,omitempty" enum:"required warning"`
	// TimeoutSeconds bounds one attempt, in which what was refused or lost is asked again; at most the worker's.
	// Default worker.checkTimeoutSeconds.
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty" minimum:"1" maximum:"3600"`
	// Attempts is how often the check is tried until it passes. An attempt fails by an answer that is final and
	// wrong, or by a fault that lasted all of its time. Default 1.
	Attempts *int32 `json:"attempts,omitempty" minimum:"1" maximum:"100"`
	// IntervalSeconds is the wait between two attempts. Default 1.
	IntervalSeconds *int32 `json:"intervalSeconds,omitempty" minimum:"1" maximum:"3600"`
	// DependsOn names checks that must pass first; otherwise this one is skipped.
	DependsOn []string `json:"dependsOn,omitempty"`

	Table
}

// Timeout bounds one attempt.
func (s Spec) Timeout() time.Duration {
	return time.Duration(ptr.Deref(s.TimeoutSeconds, DefaultTimeoutSeconds)) * time.Second
}

// Interval is the wait between two attempts.
func (s Spec) Interval() time.Duration {
	return time.Duration(ptr.Deref(s.IntervalSeconds, DefaultIntervalSeconds)) * time.Second
}

// MaxAttempts is how often the check is tried.
func (s Spec) MaxAttempts() int { return int(ptr.Deref(s.Attempts, DefaultAttempts)) }

// IsRequired reports whether the check must pass for the node to be verified.
func (s Spec) IsRequired() bool { return s.Severity != Advisory }

// WithDefaults is the check with its envelope filled in; timeoutSeconds is that of checks that set none.
func (s Spec) WithDefaults(timeoutSeconds int32) Spec {
	s.Severity = cmp.Or(s.Severity, Required)
	s.TimeoutSeconds = cmp.Or(s.TimeoutSeconds, &timeoutSeconds)
	s.Attempts = cmp.Or(s.Attempts, new(int32(DefaultAttempts)))
	s.IntervalSeconds = cmp.Or(s.IntervalSeconds, new(int32(DefaultIntervalSeconds)))
	return s
}
