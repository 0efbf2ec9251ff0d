// Package result is what a worker reports to the controller: the exit code, which decides, and the report, which
// explains.
package result

// Exit codes of a worker. Only ExitFailed speaks about the node; every other non-zero code
// is inconclusive and never spends a node's failure budget.
const (
	// ExitPassed: every required check passed.
	ExitPassed = 0
	// ExitFailed: at least one required check failed; the node is at fault.
	ExitFailed = 1
	// ExitConfig: the configuration was refused before any check ran.
	ExitConfig = 2
	// ExitClient: the Kubernetes client could not be set up (no token, no CA).
	ExitClient = 3
	// ExitInconclusive: no required check failed, and at least one was inconclusive.
	ExitInconclusive = 4
	// ExitInternal: an unexpected internal error.
	ExitInternal = 10
)

// Outcome is the result of a check, or of a whole worker.
type Outcome string

// Outcomes of one check. A report as a whole is Passed, Failed, Inconclusive, or one of the Error outcomes.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Warning Outcome = "warning" // failed, but its severity is warning; or passed with a warning
	Skipped Outcome = "skipped" // a check it depends on did not pass, or it was not selected
	// Inconclusive: it is unknown whether the node is at fault.
	Inconclusive Outcome = "inconclusive"

	ConfigError   Outcome = "config-error"
	ClientError   Outcome = "client-error"
	InternalError Outcome = "internal-error"
)

// exitCodes are the outcomes of a report, with the exit code that goes with each.
var exitCodes = map[Outcome]int{Passed: ExitPassed, Failed: ExitFailed, Inconclusive: ExitInconclusive,
	ConfigError: ExitConfig, ClientError: ExitClient, InternalError: ExitInternal}

// Version is the report format's version, the only one that Parse accepts.
const Version = 1

// MaxBytes bounds an encoded report. The kubelet reads at most 4096 bytes of a container's
// termination message (MaxContainerTerminationMessageLength in k8s.io/kubernetes
// pkg/kubelet/container) and cuts a longer one anywhere, which would leave invalid JSON. In a pod of more than three
// containers, init containers among them, it cuts each message again, to an equal share of 12 KiB (normalizeStatus in
// pkg/kubelet/status).
const MaxBytes = 4096

// Report is the worker's report of one attempt.
type Report struct {
	Version    int     `json:"version"`
	Node       string  `json:"node"`
	Outcome    Outcome `json:"outcome"`
	DurationMs int64   `json:"durationMs"`
	// Checks holds failures first, then inconclusive ones, warnings, skipped and passed ones.
	Checks []Check `json:"checks"`
	// Omitted counts the checks that were left out of Checks because the report would not
	// have fitted; failures are the last to go. It is at least 1 in a report that was cut off.
	Omitted int `json:"omitted,omitempty"`
}

// Check is the result of one check.
type Check struct {
	Name       string  `json:"name"`
	Type       string  `json:"type"`
	Severity   string  `json:"severity"` // required or warning
	Outcome    Outcome `json:"outcome"`
	DurationMs int64   `json:"durationMs"`
	// Reason is one CamelCase word from the check type's closed list; empty when passed.
	Reason string `json:"reason"`
	// Message is for a person: which peer, what was expected, what happened.
	Message string `json:"message"`
}
