// Package run performs checks: independent ones concurrently, the others after those that they depend on, all under one
// deadline.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

// ErrInterrupted is the cause of a context that is cancelled because the worker is stopped. Running checks then
// prove nothing about the node.
var ErrInterrupted = errors.New("the worker was stopped")

// grace is how long an attempt may take to return after its context has ended. Later ones are abandoned: a write to a
// dead disk cannot be cancelled.
const grace = 200 * time.Millisecond

// advisoryGrace is how long warning checks may run after the last required one; with grace it makes a second.
const advisoryGrace = time.Second - grace

// Job is a check and how to perform it.
type Job struct {
	Spec checks.Spec
	// Check makes one attempt. It is nil for a check that is skipped.
	Check check.Func
	// Skip is why Check is nil.
	Skip check.Finding
}

// completion is the result of one check.
type completion struct {
	index int
	check result.Check
	// blocks is true if checks that depend on this one are skipped.
	blocks bool
}

// Run performs the jobs, whose specs are valid, before the context's deadline and returns the report, which names no
// node. It calls onFinish, if set, with each check as it ends, one at a time.
func Run(ctx context.Context, jobs []Job, onFinish func(result.Check)) result.Report {
	start := time.Now()
	r := run{jobs: jobs, known: map[string]bool{}, started: make([]bool, len(jobs)), blocks: map[string]bool{},
		results: make(chan completion, len(jobs))}
	required := 0
	for _, j := range jobs {
		r.known[j.Spec.Name] = true
		if j.Spec.IsRequired() {
			required++
		}
	}
	checks := make([]result.Check, len(jobs))
	advisory := newExpirable(ctx)
	for left := len(jobs); left > 0; left-- {
		r.startReady(ctx, advisory)
		e := <-r.results
		if jobs[e.index].Spec.IsRequired() {
			if required--; required == 0 {
				defer time.AfterFunc(advisoryGrace, advisory.expire).Stop()
			}
		}
		r.blocks[e.check.Name] = e.blocks
		checks[e.index] = e.check
		if onFinish != nil {
			onFinish(e.check)
		}
	}
	report := result.Report{Version: result.Version, Outcome: outcome(checks),
		DurationMs: time.Since(start).Milliseconds(), Checks: checks}
	report.Sort()
	return report
}

func wasPerformed(c result.Check) bool { return c.Outcome != result.Skipped }

// outcome of a run. An interruption decides, whatever has failed: when a node shuts down, its network goes before its
// last process. Else a failed check does, then an error of the worker itself, and last a check that is inconclusive, or
// that no check was performed.
func outcome(checks []result.Check) result.Outcome {
	own, failed, inconclusive := result.Passed, false, !slices.ContainsFunc(checks, wasPerformed)
	for _, c := range checks {
		switch c.Reason {
		case check.ReasonInterrupted.String():
			return result.InternalError
		case check.ReasonInternal.String():
			own = result.InternalError
		case check.ReasonConfiguration.String():
			if c.Outcome == result.Failed && own == result.Passed {
				own = result.ConfigError
			}
		default:
			failed = failed || c.Outcome == result.Failed
		}
		inconclusive = inconclusive || c.Outcome == result.Inconclusive
	}
	switch {
	case failed:
		return result.Failed
	case own == result.Passed && inconclusive:
		return result.Inconclusive
	}
	return own
}

type run struct {
	jobs    []Job
	known   map[string]bool // the names of all checks
	started []bool
	blocks  map[string]bool // of each check that has ended: what depends on it is skipped, or else may run
	results chan completion
}

// startReady starts every waiting check whose dependencies have ended: required ones with the first context, warnings
// with the second.
func (r *run) startReady(required, advisory context.Context) {
	for i, j := range r.jobs {
		if r.started[i] {
			continue
		}
		blocker, ready := r.dependencies(j.Spec)
		if !ready {
			continue
		}
		r.started[i] = true
		if blocker != "" {
			j.Check = nil
			j.Skip = check.Fail(check.ReasonDependencyFailed,
				"not run, because %s, which it depends on, did not pass", blocker)
		}
		ctx := required
		if !j.Spec.IsRequired() {
			ctx = advisory
		}
		recovery.Go(func() { r.results <- perform(ctx, i, j) }, func(p *recovery.Panic) {
			c := newResult(j)
			c.Outcome, c.Reason, c.Message = result.Failed, p.Reason().String(), result.Sanitise(p.Error())
			r.results <- completion{i, c, true}
		})
	}
}

// dependencies reports whether the checks that s depends on have ended, and names one that did not pass. It ignores
// checks that are not in the list.
func (r *run) dependencies(s checks.Spec) (blocker string, ready bool) {
	ready = true
	for _, name := range s.DependsOn {
		blocks, ended := r.blocks[name]
		if blocks {
			return name, true
		}
		ready = ready && (ended || !r.known[name])
	}
	return "", ready
}

// newResult is the result of a check before it is performed.
func newResult(j Job) result.Check {
	severity := cmp.Or(j.Spec.Severity, checks.Required)
	return result.Check{Name: j.Spec.Name, Type: string(j.Spec.Type), Severity: severity}
}

// perform makes the attempts at one check.
func perform(ctx context.Context, index int, j Job) completion {
	c := newResult(j)
	if j.Check == nil {
		c.Outcome, c.Reason, c.Message = result.Skipped, j.Skip.Reason.String(), result.Sanitise(j.Skip.Message)
		// A check that was left out on purpose does not block others.
		return completion{index, c, j.Skip.Reason == check.ReasonDependencyFailed}
	}
	start := time.Now()
	f := attempts(ctx, j)
	c.DurationMs = time.Since(start).Milliseconds()
	c.Reason, c.Message = f.Reason.String(), result.Sanitise(f.Message)
	switch {
	case f.Outcome == check.Passed:
		c.Outcome = result.Passed
	case f.Reason == check.ReasonInterrupted, f.Reason == check.ReasonNoDNSService && !j.Spec.IsRequired():
		c.Outcome = result.Skipped
	case f.Outcome == check.Warned, !j.Spec.IsRequired():
		c.Outcome = result.Warning
	case f.Outcome == check.Inconclusive:
		c.Outcome = result.Inconclusive
	default:
		c.Outcome = result.Failed
	}
	return completion{index, c, !f.Passed()}
}

// attempts makes attempts until one passes, there are no more, or the context ends.
func attempts(ctx context.Context, j Job) check.Finding {
	maxAttempts := j.Spec.MaxAttempts()
	var f check.Finding
	for n := 1; ; n++ {
		if ctx.Err() != nil {
			return stopped(ctx, "", f)
		}
		f = attempt(ctx, j)
		if f.Passed() || f.Reason == check.ReasonInternal {
			return f
		}
		if ctx.Err() != nil {
			return stopped(ctx, fmt.Sprintf(" (attempt %d of %d)", n, maxAttempts), f)
		}
		if n == maxAttempts {
			if maxAttempts > 1 {
				f.Message += fmt.Sprintf(" (after %d attempts)", maxAttempts)
			}
			return f
		}
		select {
		case <-ctx.Done():
		case <-time.After(j.Spec.Interval()):
		}
	}
}

// stopped is the finding of a check that did not finish before the end of the run, in the attempt that when describes.
func stopped(ctx context.Context, when string, last check.Finding) check.Finding {
	history := ""
	if last.Message != "" && last.Reason != check.ReasonInterrupted {
		history = "; until then: " + last.Message
	}
	expired := hasExpired(ctx)
	switch {
	case errors.Is(context.Cause(ctx), ErrInterrupted) || errors.Is(ctx.Err(), context.Canceled):
		return check.Fail(check.ReasonInterrupted, "not finished when the worker was stopped%s%s", when, history)
	case expired && history != "": // the warning is what happened until then
		last.Message += " (the worker stopped waiting for it, because all required checks had ended" + when + ")"
		return last
	case expired:
		return check.Fail(check.ReasonTimeout, "the worker stopped waiting for it, because all required checks had "+
			"ended%s", when)
	}
	f := check.Fail(check.ReasonDeadlineExceeded,
		"not finished when the worker's timeoutSeconds ran out%s%s", when, history)
	if last.Outcome == check.Inconclusive {
		f.Outcome = check.Inconclusive // a timeout does not make it the node's fault
	}
	return f
}

// attempt runs the check once, within its timeout, and recovers its panic.
func attempt(ctx context.Context, j Job) check.Finding {
	timeout := j.Spec.Timeout()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found := make(chan check.Finding, 1)
	ctx, retries := retry.WithRecord(ctx)
	recovery.Go(func() { found <- retries.Describe(j.Check(ctx)) },
		func(p *recovery.Panic) { found <- check.Fail(p.Reason(), "%v", p) })
	select {
	case f := <-found:
		return f
	case <-ctx.Done():
	}
	select {
	case f := <-found:
		return f
	case <-time.After(grace):
		return check.Fail(check.ReasonTimeout, "did not end within %s", timeout)
	}
}

// expirable is a context that can be ended as if its deadline had passed: to a check, what it waits for then did not
// answer in time. A cancelled context would mean that the worker is stopped.
type expirable struct {
	context.Context
	once sync.Once
	done chan struct{}
	// err, and whether expire was its cause, are set before done is closed.
	err     error
	expired bool
}

func newExpirable(parent context.Context) *expirable {
	e := &expirable{Context: parent, done: make(chan struct{})}
	context.AfterFunc(parent, func() { e.end(parent.Err(), false) })
	return e
}

func (e *expirable) expire() { e.end(context.DeadlineExceeded, true) }

func (e *expirable) end(err error, expired bool) {
	e.once.Do(func() {
		e.err, e.expired = err, expired
		close(e.done)
	})
}

func (e *expirable) Done() <-chan struct{} { return e.done }

func (e *expirable) Err() error {
	select {
	case <-e.done:
		return e.err
	default:
		return nil
	}
}

// hasExpired reports whether expire ended the context.
func hasExpired(ctx context.Context) bool {
	e, ok := ctx.(*expirable)
	return ok && e.Err() != nil && e.expired
}
