// Package attempt is one run of a node's checks and its result. A worker's pod runs them, or a DaemonSet's process on
// the node.
package attempt

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

// Outcome is what an attempt proved about its node.
type Outcome string

// The outcomes of an attempt.
const (
	Passed       Outcome = "passed"
	Failed       Outcome = "failed"       // spends the failure budget
	Inconclusive Outcome = "inconclusive" // proves nothing about the node
)

// The reasons of an attempt that did not pass. If a check is named too, the reason is that check's (CheckReason), from
// the list of its type in docs/reference/checks.md.
const (
	ReasonChecksFailed    = "ChecksFailed"    // exit 1, and the check's own reason cannot be shown
	ReasonTimeout         = "Timeout"         // started, and ran past timeoutSeconds
	ReasonWorkerStuck     = "WorkerStuck"     // the last worker does not end, so no other can start
	ReasonConfigRefused   = "ConfigRefused"   // exit 2
	ReasonClientSetup     = "ClientSetup"     // exit 3
	ReasonUndecided       = "Undecided"       // exit code 4: a required check was inconclusive
	ReasonInternalError   = "InternalError"   // exit 10
	ReasonUnknownExit     = "UnknownExitCode" // any other code
	ReasonNoReport        = "NoReport"        // one of these codes, and no report of the worker that says the same
	ReasonImagePull       = "ImagePull"       // the image cannot be pulled
	ReasonContainerConfig = "ContainerConfig" // the kubelet cannot create the container
	ReasonInitFailed      = "InitContainer"   // an init container failed
	ReasonUnschedulable   = "Unschedulable"   // kube-scheduler could not place the pod on the node
	ReasonKubeletRejected = "KubeletRejected" // the kubelet's admission refused the pod
	ReasonOOMKilled       = "OOMKilled"       // the kernel killed the worker
	ReasonEvicted         = "Evicted"         // node pressure or preemption
	ReasonNodeLost        = "NodeLost"        // the kubelet stopped reporting
	ReasonPodDeleted      = "PodDeleted"      // somebody deleted the pod
	ReasonStartTimeout    = "StartTimeout"    // not started within startTimeoutSeconds
	ReasonInitTimeout     = "InitTimeout"     // its init containers did not end within initTimeoutSeconds
	ReasonStartedLate     = "StartedLate"     // started so late that the pod's deadline passed before timeoutSeconds
	ReasonNodeRebooted    = "NodeRebooted"    // the result is from before a reboot
	ReasonNodeShutdown    = "NodeShutdown"    // the kubelet ended the pod as the node shut down
	ReasonChecksChanged   = "ChecksChanged"   // it ran other checks than the node has now
	ReasonGateReturned    = "GateReturned"    // it passed before the gating taint was added again
	ReasonGateRemoved     = "GateRemoved"     // the gating taint was removed while it ran
	// ReasonPrerequisitesLost: it passed, and a prerequisite of the node no longer held.
	ReasonPrerequisitesLost = "PrerequisitesLost"
	ReasonPodRefused        = "PodRefused"       // the API server rejected the pod
	ReasonNameTaken         = "NameTaken"        // a pod of another creator has the name
	ReasonUnknownPodStatus  = "UnknownPodStatus" // ended without a readable status
	ReasonFailureUnseen     = "FailureUnseen"    // failed before the leader observed it
	ReasonSharedFailure     = "SharedFailure"    // failed on a node that worked, and so do others, or none can be compared
	ReasonDeadline          = "DeadlineExceeded" // past its deadline, with reconciliation.onDeadline remediate; no pod
)

// ReasonNoChecks is the reason of an attempt that passed because there is nothing to check.
const ReasonNoChecks = "NoChecks"

// ReasonAdopted is the reason in the record of a node that carried the verified label before it had a record. No
// attempt led to it.
const ReasonAdopted = "Adopted"

// Basis is the state of the node when an attempt began. The result counts only while that state holds.
type Basis struct {
	// BootID is the node's boot when the attempt began; empty where it was not reported.
	BootID string
	// Checks identifies the checks that were run; empty where it is not known.
	Checks string
	// Gated reports whether the node carried a gating taint when the attempt began.
	Gated bool
	// Request is the ID of the request that the record showed when the attempt began; empty for none. The attempt answers
	// only that request, because it may have run before another one.
	Request string
}

// Result is the result of an attempt.
type Result struct {
	Outcome Outcome
	// Check is the required check that failed first; empty if no check failed.
	Check string
	// Reason is one of the reasons above or, where Check is set, the check's own; when the attempt passed, ReasonNoChecks
	// or empty.
	Reason string
	// Message is for a person, at most MaxMessage bytes of printable text on one line.
	Message string
	// Duration is how long the checks ran; 0 where they did not.
	Duration time.Duration
	// Report is the worker's report; nil if there is none that can be read.
	Report *result.Report
}

// Attempt is one run of a node's checks.
type Attempt struct {
	// Number counts the attempts of a node from 1; it never goes back while the node's record lives.
	Number int32
	Basis  Basis
	// Result is nil while there is none.
	Result *Result
}

// NewInconclusive is the result of an attempt that proves nothing about its node.
func NewInconclusive(reason, message string) *Result {
	return &Result{Outcome: Inconclusive, Reason: reason, Message: Text(message)}
}

// MaxMessage bounds a message, in bytes, before it is stored in a record, a condition or an event.
const MaxMessage = 512

// Text makes a message from a worker, a kubelet or an API server safe to store and to show. The result is printable, on
// one line, without secrets, and cut to MaxMessage bytes between two characters.
func Text(s string) string {
	if len(s) > 8*MaxMessage {
		s = s[:8*MaxMessage] // what is cut off anyway need not be searched for secrets
	}
	return result.Clip(result.Sanitise(s), MaxMessage)
}

// reasonPattern is that of the reasons of conditions: one word in upper camel case (Kubernetes API conventions).
var reasonPattern = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,63}$`)

// CheckReason is a check's reason from a report, or ReasonChecksFailed where it does not have a reason's form.
func CheckReason(reported string) string {
	if !reasonPattern.MatchString(reported) {
		return ReasonChecksFailed
	}
	return reported
}

// FromExitCode is the result of a worker that ended with an exit code and left a report about its node; nil if none can
// be read. A code other than 0 counts only beside a report of the same outcome, and 1 only beside one that names a
// required check that failed. Otherwise another program may have chosen the code: one that cannot be started, a shell
// before the worker, and the Go runtime have exit codes of their own.
func FromExitCode(code int32, report *result.Report) *Result {
	r := resultOfCode(code, report)
	r.Report = report
	return r
}

func resultOfCode(code int32, report *result.Report) *Result {
	r := &Result{Outcome: Passed, Message: "all required checks passed"}
	switch code {
	case result.ExitPassed:
		return r
	case result.ExitFailed:
		r = &Result{Outcome: Failed}
	case result.ExitInconclusive:
		r = NewInconclusive(ReasonUndecided, "a required check was inconclusive (exit code 4)")
	case result.ExitConfig:
		r = NewInconclusive(ReasonConfigRefused, "the worker rejected its configuration (exit code 2); see its log")
	case result.ExitClient:
		r = NewInconclusive(ReasonClientSetup,
			"the worker has no service account token or CA (exit code 3); see worker.serviceAccountName")
	case result.ExitInternal:
		r = NewInconclusive(ReasonInternalError, "the worker had an internal error (exit code 10); see its log")
	default:
		return NewInconclusive(ReasonUnknownExit, fmt.Sprintf("the worker ended with exit code %d", code))
	}
	unproved := func(format string, args ...any) *Result {
		return NewInconclusive(ReasonNoReport, fmt.Sprintf("the worker ended with exit code %d, and ", code)+
			fmt.Sprintf(format, args...))
	}
	switch {
	case report == nil && code == result.ExitConfig: // the Go runtime's own
		return unproved("left no report of this attempt that can be read: it crashed, perhaps for lack of threads or " +
			"file descriptors; see the node's limits of processes (pids) and open files")
	case report == nil:
		return unproved("left no report of this attempt that can be read")
	case report.ExitCode() != int(code):
		return unproved("its report has another outcome: %s", report.Outcome)
	case code == result.ExitFailed && !nameFailedCheck(r, report, result.Failed):
		return unproved("its report names no required check that failed")
	case code == result.ExitInconclusive:
		nameFailedCheck(r, report, result.Inconclusive)
	}
	return r
}

// nameFailedCheck names the first required check of the outcome, and the others of it. It reports whether there is one.
func nameFailedCheck(r *Result, report *result.Report, of result.Outcome) bool {
	var first *result.Check
	var others []string
	for i := range report.Checks {
		c := &report.Checks[i]
		switch {
		case c.Outcome != of || c.Severity != "required":
		case first == nil:
			first = c
		default:
			others = append(others, c.Name)
		}
	}
	if first == nil {
		return false
	}
	r.Check, r.Reason = Text(first.Name), CheckReason(first.Reason)
	more := otherFailures(others)
	r.Message = first.Message
	if room := MaxMessage - len(more); len(r.Message) > room {
		r.Message = strings.ToValidUTF8(r.Message[:room-len("…")], "") + "…" // the list must not be what is cut
	}
	r.Message = Text(r.Message + more)
	return true
}

// maxOtherFailures bounds how many checks are named beside the first that failed.
const maxOtherFailures = 5

// otherFailures names the other checks that failed: lost service routing, say, fails DNS too, and it is the list that
// tells them apart.
func otherFailures(names []string) string {
	if len(names) == 0 {
		return ""
	}
	more := ""
	if n := len(names) - maxOtherFailures; n > 0 {
		names, more = names[:maxOtherFailures], fmt.Sprintf(" and %d more", n)
	}
	list := strings.Join(names, ", ")
	if most := MaxMessage / 2; len(list) > most {
		list = strings.ToValidUTF8(list[:most], "") + "…"
	}
	return "; also failed: " + list + more
}
