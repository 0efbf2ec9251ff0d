package workerpod

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

// exited turns the container's exit into a result. The exit code decides; the report explains.
func exited(t *corev1.ContainerStateTerminated, nodeName string) *attempt.Result {
	var report *result.Report
	if r, err := result.Parse([]byte(t.Message)); err == nil && r.Node == nodeName {
		report = &r
	}
	r := outcome(t, report)
	r.Report, r.Duration = report, duration(t, report)
	return r
}

func outcome(t *corev1.ContainerStateTerminated, report *result.Report) *attempt.Result {
	switch {
	case t.Reason == "OOMKilled":
		return attempt.Inconclusively(attempt.ReasonOOMKilled, "the worker ran out of memory; raise worker.resources.limits.memory")
	case t.ExitCode == result.ExitPassed:
		return &attempt.Result{Outcome: attempt.Passed, Message: "all required checks passed"}
	case t.ExitCode == result.ExitFailed:
		r := &attempt.Result{Outcome: attempt.Failed, Reason: attempt.ReasonChecksFailed, Message: "a required check failed; the worker left no report"}
		blame(r, report, result.Failed)
		return r
	case t.ExitCode == result.ExitInconclusive:
		r := attempt.Inconclusively(attempt.ReasonUndecided, "a required check could not tell whose fault it is (exit 4); the worker left no report")
		blame(r, report, result.Inconclusive)
		return r
	case t.ExitCode == result.ExitConfig:
		return attempt.Inconclusively(attempt.ReasonConfigRefused, "the worker refused its configuration (exit 2); its log says why")
	case t.ExitCode == result.ExitClient:
		return attempt.Inconclusively(attempt.ReasonClientSetup, "the worker has no service account token or CA (exit 3); see worker.serviceAccountName")
	case t.ExitCode == result.ExitInternal:
		return attempt.Inconclusively(attempt.ReasonInternalError, "the worker hit an internal error (exit 10); its log says which")
	}
	return attempt.Inconclusively(attempt.ReasonUnknownExit, fmt.Sprintf("the worker ended with exit code %d (%s)", t.ExitCode, t.Reason))
}

// blame names the first required check of the outcome, and the others of it.
func blame(r *attempt.Result, report *result.Report, of result.Outcome) {
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
	r.Check, r.Reason = attempt.Text(first.Name), attempt.CheckReason(first.Reason)
	more := also(others)
	r.Message = first.Message
	if room := attempt.MaxMessage - len(more); len(r.Message) > room {
		r.Message = strings.ToValidUTF8(r.Message[:room-len("…")], "") + "…" // the list must not be what is cut
	}
	r.Message = attempt.Text(r.Message + more)
}

// maxOthers bounds how many checks are named beside the first that failed.
const maxOthers = 5

// also names the other checks that failed: lost service routing, say, fails DNS too, and it is the list that tells them apart.
func also(names []string) string {
	if len(names) == 0 {
		return ""
	}
	more := ""
	if n := len(names) - maxOthers; n > 0 {
		names, more = names[:maxOthers], fmt.Sprintf(" and %d more", n)
	}
	list := strings.Join(names, ", ")
	if most := attempt.MaxMessage / 2; len(list) > most {
		list = strings.ToValidUTF8(list[:most], "") + "…"
	}
	return "; also failed: " + list + more
}

// duration is how long the container ran. The kubelet's times have whole seconds, so the worker's own measure is taken
// where it agrees with them.
func duration(t *corev1.ContainerStateTerminated, report *result.Report) time.Duration {
	ran := t.FinishedAt.Sub(t.StartedAt.Time)
	if t.StartedAt.IsZero() || ran < 0 {
		return 0
	}
	if report != nil {
		if own := time.Duration(report.DurationMs) * time.Millisecond; own >= ran-time.Second && own <= ran+time.Second {
			return own
		}
	}
	return ran
}
