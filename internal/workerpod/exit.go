package workerpod

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

// resultOfExit turns the container's exit into a result.
func resultOfExit(t *corev1.ContainerStateTerminated, nodeName string) *attempt.Result {
	var report *result.Report
	if r, err := result.Parse([]byte(t.Message)); err == nil && r.Node == nodeName {
		report = &r
	}
	r := attempt.FromExitCode(t.ExitCode, report)
	switch {
	case t.Reason == "OOMKilled":
		r = attempt.NewInconclusive(attempt.ReasonOOMKilled, "the worker ran out of memory; raise worker.resources.limits.memory")
		r.Report = report
	case r.Reason == attempt.ReasonUnknownExit:
		r.Message = attempt.Text(fmt.Sprintf("%s (%s)", r.Message, t.Reason)) // the runtime's word for it
	}
	r.Duration = duration(t, report)
	return r
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
