// Package run performs checks: all independent ones at once, the others after those that
// they depend on, under one deadline, and ends early when it is told to.
package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

// ErrInterrupted is the cause with which a context is cancelled when the worker is told to
// stop: checks that are under way then prove nothing about the node.
var ErrInterrupted = errors.New("the worker was told to stop")

// grace is how long an attempt may take to return once its context has ended. One that does
// not (a write to a dead disk cannot be cancelled) is left behind.
const grace = 200 * time.Millisecond

// patience is how long warning checks are waited for once no required one is left: with the
// grace it makes a second.
const patience = time.Second - grace

// Job is a check and how to perform it.
type Job struct {
	Spec checks.Spec
	// Check makes one attempt. It is nil for a check that is not to be performed.
	Check check.Func
	// Skip says why there is no check.
	Skip check.Finding
}

// Options of a run.
type Options struct {
	// Node is the name that the report carries.
	Node string
	// Timeout bounds the whole run.
	Timeout time.Duration
	// OnFinish, if set, is called with each check as it ends, one at a time.
	OnFinish func(result.Check)
}

// ended is how one check ended.
type ended struct {
	index int
	check result.Check
	// blocks is true when checks that depend on this one are skipped.
	blocks bool
}

// Run performs the jobs, whose specs have been validated, and reports.
func Run(ctx context.Context, jobs []Job, o Options) result.Report {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()

	r := run{jobs: jobs, index: map[string]int{}, state: make([]state, len(jobs)), results: make(chan ended, len(jobs))}
	required := 0
	for i, j := range jobs {
		r.index[j.Spec.Name] = i
		if j.Spec.IsRequired() {
			required++
		}
	}
	checks := make([]result.Check, len(jobs))
	advisory := curtail(ctx)
	for left := len(jobs); left > 0; left-- {
		r.startReady(ctx, advisory)
		e := <-r.results
		if jobs[e.index].Spec.IsRequired() {
			if required--; required == 0 {
				defer time.AfterFunc(patience, advisory.Cut).Stop()
			}
		}
		r.state[e.index] = stateDone
		if e.blocks {
			r.state[e.index] = stateBlocks
		}
		checks[e.index] = e.check
		if o.OnFinish != nil {
			o.OnFinish(e.check)
		}
	}
	report := result.Report{Version: result.Version, Node: o.Node, Outcome: outcome(checks),
		DurationMs: time.Since(start).Milliseconds(), Checks: checks}
	report.Sort()
	return report
}

// tried reports whether a check was performed. Where none was, nothing has been proved.
func tried(c result.Check) bool { return c.Outcome != result.Skipped }

// outcome of a run. A worker that was stopped has not judged the node, whatever had failed by
// then: the network goes down before the last process of a node does. Otherwise a check that
// failed condemns the node, only without one does it count that the worker was at fault itself,
// and only then what could not tell.
func outcome(checks []result.Check) result.Outcome {
	own, failed, inconclusive := result.Passed, false, !slices.ContainsFunc(checks, tried)
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

type state int

const (
	stateWaiting state = iota
	stateRunning
	stateDone   // what depends on it may run
	stateBlocks // what depends on it is skipped
)

type run struct {
	jobs    []Job
	index   map[string]int
	state   []state
	results chan ended
}

// startReady starts every waiting check whose dependencies have all ended, those of severity
// warning in a context of their own.
func (r *run) startReady(whole, advisory context.Context) {
	for i, j := range r.jobs {
		if r.state[i] != stateWaiting {
			continue
		}
		blocker, ready := r.dependencies(j.Spec)
		if !ready {
			continue
		}
		r.state[i] = stateRunning
		if blocker != "" {
			j.Check = nil
			j.Skip = check.Fail(check.ReasonDependencyFailed, "not tried, because %s, which it depends on, did not pass", blocker)
		}
		ctx := whole
		if !j.Spec.IsRequired() {
			ctx = advisory
		}
		recovery.Go(func() { r.results <- perform(ctx, i, j) }, func(p *recovery.Panic) {
			c := account(j)
			c.Outcome, c.Reason, c.Message = result.Failed, p.Reason().String(), result.Sanitise(p.Error())
			r.results <- ended{i, c, true}
		})
	}
}

// dependencies reports whether the checks that s depends on have ended, and names one that
// did not pass. A check that is not in the list was not selected and holds nothing up.
func (r *run) dependencies(s checks.Spec) (blocker string, ready bool) {
	ready = true
	for _, name := range s.DependsOn {
		i, selected := r.index[name]
		if !selected {
			continue
		}
		switch r.state[i] {
		case stateBlocks:
			return name, true
		case stateWaiting, stateRunning:
			ready = false
		}
	}
	return "", ready
}

// account is the account of a check that has not been performed.
func account(j Job) result.Check {
	c := result.Check{Name: j.Spec.Name, Type: string(j.Spec.Type), Severity: string(checks.Required)}
	if !j.Spec.IsRequired() {
		c.Severity = string(checks.Advisory)
	}
	return c
}

// perform makes the attempts at one check.
func perform(ctx context.Context, index int, j Job) ended {
	c := account(j)
	if j.Check == nil {
		c.Outcome, c.Reason, c.Message = result.Skipped, j.Skip.Reason.String(), result.Sanitise(j.Skip.Message)
		// Only a dependency's failure is handed down: what was left out on purpose holds nothing up.
		return ended{index, c, j.Skip.Reason == check.ReasonDependencyFailed}
	}
	start := time.Now()
	f := attempts(ctx, j)
	c.DurationMs = time.Since(start).Milliseconds()
	c.Message = result.Sanitise(f.Message)
	c.Reason = f.Reason.String()
	blocks := false
	switch {
	case f.Outcome == check.Passed:
		c.Outcome = result.Passed
	case f.Outcome == check.Warned:
		c.Outcome = result.Warning
	case f.Reason == check.ReasonInterrupted:
		c.Outcome, blocks = result.Skipped, true
	case !j.Spec.IsRequired():
		c.Outcome, blocks = result.Warning, true
	case f.Outcome == check.Inconclusive:
		c.Outcome, blocks = result.Inconclusive, true
	default:
		c.Outcome, blocks = result.Failed, true
	}
	return ended{index, c, blocks}
}

// attempts tries until one passes, attempts run out, or the context ends.
func attempts(ctx context.Context, j Job) check.Finding {
	most := j.Spec.MaxAttempts()
	var f check.Finding
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return stopped(ctx, "", f)
		}
		f = attempt(ctx, j)
		if f.Passed() || f.Reason == check.ReasonInternal {
			return f
		}
		if ctx.Err() != nil {
			return stopped(ctx, fmt.Sprintf(" (attempt %d of %d)", n, most), f)
		}
		if n == most {
			if most > 1 {
				f.Message += fmt.Sprintf(" (after %d attempts)", most)
			}
			return f
		}
		select {
		case <-ctx.Done():
		case <-time.After(j.Spec.Interval()):
		}
	}
}

// stopped is the finding of a check that the end of the run cut short.
func stopped(ctx context.Context, when string, last check.Finding) check.Finding {
	so := ""
	if last.Message != "" && last.Reason != check.ReasonInterrupted {
		so = "; until then: " + last.Message
	}
	if errors.Is(context.Cause(ctx), ErrInterrupted) || errors.Is(ctx.Err(), context.Canceled) {
		return check.Fail(check.ReasonInterrupted, "not finished when the worker was told to stop%s%s", when, so)
	}
	if wasCut(ctx) && so != "" { // what it met until then is what it warns of
		last.Message += " (not waited for any longer, since all required checks had ended" + when + ")"
		return last
	}
	if wasCut(ctx) {
		return check.Fail(check.ReasonTimeout, "not waited for any longer, since all required checks had ended%s%s", when, so)
	}
	f := check.Fail(check.ReasonDeadlineExceeded, "not finished when the worker's timeoutSeconds ran out%s%s", when, so)
	if last.Outcome == check.Inconclusive {
		f.Outcome = check.Inconclusive // that time ran out as well does not make it the node's fault
	}
	return f
}

// attempt runs the check once, within the check's timeout, and survives its panic.
func attempt(ctx context.Context, j Job) check.Finding {
	timeout := j.Spec.Timeout()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found := make(chan check.Finding, 1)
	ctx, asked := retry.WithRecord(ctx)
	recovery.Go(func() { found <- asked.Describe(j.Check(ctx)) },
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
