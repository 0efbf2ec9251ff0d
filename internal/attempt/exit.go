package attempt

import (
	"fmt"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

// FromExitCode is the result of a worker that ended with an exit code and left a report, nil where none can be read. The code decides;
// the report explains.
func FromExitCode(code int32, report *result.Report) *Result {
	r := resultOfCode(code, report)
	r.Report = report
	return r
}

func resultOfCode(code int32, report *result.Report) *Result {
	switch code {
	case result.ExitPassed:
		return &Result{Outcome: Passed, Message: "all required checks passed"}
	case result.ExitFailed:
		r := &Result{Outcome: Failed, Reason: ReasonChecksFailed, Message: "a required check failed; the worker left no report"}
		nameFailedCheck(r, report, result.Failed)
		return r
	case result.ExitInconclusive:
		r := NewInconclusive(ReasonUndecided, "a required check could not tell whose fault it is (exit 4); the worker left no report")
		nameFailedCheck(r, report, result.Inconclusive)
		return r
	case result.ExitConfig:
		return NewInconclusive(ReasonConfigRefused, "the worker refused its configuration (exit 2); its log says why")
	case result.ExitClient:
		return NewInconclusive(ReasonClientSetup, "the worker has no service account token or CA (exit 3); see worker.serviceAccountName")
	case result.ExitInternal:
		return NewInconclusive(ReasonInternalError, "the worker hit an internal error (exit 10); its log says which")
	}
	return NewInconclusive(ReasonUnknownExit, fmt.Sprintf("the worker ended with exit code %d", code))
}

// nameFailedCheck names the first required check of the outcome, and the others of it.
func nameFailedCheck(r *Result, report *result.Report, of result.Outcome) {
	if report == nil {
		return
	}
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
		return
	}
	r.Check, r.Reason = Text(first.Name), CheckReason(first.Reason)
	more := otherFailures(others)
	r.Message = first.Message
	if room := MaxMessage - len(more); len(r.Message) > room {
		r.Message = strings.ToValidUTF8(r.Message[:room-len("…")], "") + "…" // the list must not be what is cut
	}
	r.Message = Text(r.Message + more)
}

// maxOtherFailures bounds how many checks are named beside the first that failed.
const maxOtherFailures = 5

// otherFailures names the other checks that failed: lost service routing, say, fails DNS too, and it is the list that tells them apart.
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
