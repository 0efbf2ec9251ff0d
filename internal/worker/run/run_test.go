package run_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/run"
)

func pass(context.Context) check.Finding { return check.Pass("fine") }
func fail(context.Context) check.Finding { return check.Fail(check.ReasonTimeout, "no answer") }
func warn(context.Context) check.Finding { return check.Warn(check.ReasonTimeout, "slow") }

// hang waits for its context and says what it waited for, as checks do.
func hang(ctx context.Context) check.Finding {
	<-ctx.Done()
	return check.Fail(check.ReasonTimeout, "10.0.0.1 did not answer")
}

func job(name string, f check.Func, dependsOn ...string) run.Job {
	return run.Job{Spec: checks.Spec{Name: name, Type: "tcp", DependsOn: dependsOn, TimeoutSeconds: new(int32(1))}, Check: f}
}

func advisory(j run.Job) run.Job {
	j.Spec.Severity = checks.Advisory
	return j
}

// enough is for runs that end before.
const enough = 5 * time.Second

// perform runs the jobs and lists "name outcome reason" of each.
func perform(ctx context.Context, timeout time.Duration, jobs ...run.Job) (result.Report, string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r := run.Run(ctx, jobs, nil)
	var lines []string
	for _, c := range r.Checks {
		lines = append(lines, strings.TrimSpace(c.Name+" "+string(c.Outcome)+" "+c.Reason))
	}
	slices.Sort(lines)
	return r, strings.Join(lines, ", ")
}

// TestWithoutADNSService checks that a warning about servers that the cluster does not have is skipped.
func TestWithoutADNSService(t *testing.T) {
	fault := func(r check.Reason) check.Func {
		return func(context.Context) check.Finding { return check.Fail(r, "because") }
	}
	for _, c := range []struct {
		job     run.Job
		outcome result.Outcome
		says    string
	}{
		{advisory(job("a", fault(check.ReasonNoDNSService))), result.Passed, "a skipped NoDNSService, b passed"},
		{job("a", fault(check.ReasonNoDNSService)), result.Inconclusive, "a inconclusive NoDNSService, b passed"},
		{advisory(job("a", fault(check.ReasonServiceNotFound))), result.Passed, "a warning ServiceNotFound, b passed"},
	} {
		if r, got := perform(t.Context(), enough, c.job, job("b", pass)); got != c.says || r.Outcome != c.outcome {
			t.Errorf("got %s: %s, want %s", r.Outcome, got, c.says)
		}
	}
}

func TestOutcomes(t *testing.T) {
	fault := func(r check.Reason) check.Func {
		return func(context.Context) check.Finding { return check.Fail(r, "because") }
	}
	for _, c := range []struct {
		name    string
		jobs    []run.Job
		outcome result.Outcome
		checks  string
	}{
		{"none", nil, result.Inconclusive, ""},
		{"none that was tried", []run.Job{{Spec: checks.Spec{Name: "a"}, Skip: check.Fail(check.ReasonNeedsCluster, "")}, {Spec: checks.Spec{Name: "b"}, Skip: check.Fail(check.ReasonNotSelected, "")}},
			result.Inconclusive, "a skipped NeedsCluster, b skipped NotSelected"},
		{"all pass", []run.Job{job("a", pass), job("b", pass)}, result.Passed, "a passed, b passed"},
		{"one fails", []run.Job{job("a", pass), job("b", fail)}, result.Failed, "a passed, b failed Timeout"},
		{"one warns", []run.Job{job("a", pass), advisory(job("b", fail))}, result.Passed, "a passed, b warning Timeout"},
		{"dependents are skipped, all the way", []run.Job{job("c", pass, "b"), job("b", pass, "a"), job("a", fail), job("d", pass)},
			result.Failed, "a failed Timeout, b skipped DependencyFailed, c skipped DependencyFailed, d passed"},
		{"a warning also skips", []run.Job{advisory(job("a", fail)), advisory(job("b", pass, "a"))},
			result.Passed, "a warning Timeout, b skipped DependencyFailed"},
		{"what could not tell verifies nothing", []run.Job{job("a", fault(check.ReasonUnknown)), job("b", pass, "a"), job("c", pass)},
			result.Inconclusive, "a inconclusive Unknown, b skipped DependencyFailed, c passed"},
		{"a failure condemns the node whatever could not tell", []run.Job{job("a", fault(check.ReasonUnknown)), job("b", fail)},
			result.Failed, "a inconclusive Unknown, b failed Timeout"},
		{"the worker's own fault comes before what could not tell", []run.Job{job("a", fault(check.ReasonUnknown)), job("b", fault(check.ReasonInternal))},
			result.InternalError, "a inconclusive Unknown, b failed InternalError"},
		{"a warning that could not tell is just that", []run.Job{advisory(job("a", fault(check.ReasonUnknown))), job("b", pass)},
			result.Passed, "a warning Unknown, b passed"},
		{"what passed with a warning holds nothing up", []run.Job{job("a", warn), job("b", pass, "a")},
			result.Passed, "a warning Timeout, b passed"},
		{"what was left out holds nothing up", []run.Job{{Spec: checks.Spec{Name: "a"}, Skip: check.Fail(check.ReasonNotSelected, "")}, job("b", pass, "a")},
			result.Passed, "a skipped NotSelected, b passed"},
		{"what is not in the list holds nothing up", []run.Job{job("b", pass, "a")}, result.Passed, "b passed"},
		{"a panic is the worker's fault", []run.Job{job("a", pass), job("b", func(context.Context) check.Finding { panic("oops") })},
			result.InternalError, "a passed, b failed InternalError"},
		{"a panic further down too", []run.Job{job("a", func(context.Context) check.Finding {
			recovery.Each(2, func(int) { panic("oops") })
			return check.Pass("")
		})}, result.InternalError, "a failed InternalError"},
		{"a misconfigured check too", []run.Job{job("a", pass), job("b", fault(check.ReasonConfiguration))},
			result.ConfigError, "a passed, b failed Configuration"},
		{"a failure condemns the node all the same", []run.Job{job("a", fail), job("b", fault(check.ReasonConfiguration))},
			result.Failed, "a failed Timeout, b failed Configuration"},
		{"a misconfigured warning is just that", []run.Job{job("a", pass), advisory(job("b", fault(check.ReasonConfiguration)))},
			result.Passed, "a passed, b warning Configuration"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, got := perform(context.Background(), enough, c.jobs...)
			if r.Outcome != c.outcome || got != c.checks {
				t.Errorf("got %s: %s; want %s: %s", r.Outcome, got, c.outcome, c.checks)
			}
			if r.Version != result.Version {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func TestPanicNamesItsPlace(t *testing.T) {
	n := 1
	r, _ := perform(context.Background(), enough, job("a", func(context.Context) check.Finding {
		var none []string
		return check.Pass("%s", none[n])
	}))
	if m := r.Checks[0].Message; !strings.Contains(m, "index out of range") || !strings.Contains(m, "run_test.go:") {
		t.Errorf("got %q", m)
	}
}

func TestIndependentChecksRunAtOnce(t *testing.T) {
	var meeting sync.WaitGroup
	meeting.Add(3)
	meet := func(ctx context.Context) check.Finding {
		meeting.Done()
		meeting.Wait()
		return check.Pass("met")
	}
	if r, got := perform(context.Background(), enough, job("a", meet), job("b", meet), job("c", meet)); r.Outcome != result.Passed {
		t.Error(got)
	}
}

func TestDependenciesEndFirst(t *testing.T) { synctest.Test(t, dependenciesEndFirst) }

func dependenciesEndFirst(t *testing.T) {
	ended := false
	slow := func(context.Context) check.Finding {
		time.Sleep(20 * time.Millisecond)
		ended = true
		return check.Pass("")
	}
	after := func(context.Context) check.Finding {
		if !ended {
			return check.Fail(check.ReasonInternal, "began too early")
		}
		return check.Pass("")
	}
	if r, got := perform(t.Context(), enough, job("b", after, "a"), job("a", slow)); r.Outcome != result.Passed {
		t.Error(got)
	}
}

func TestAttempts(t *testing.T) { synctest.Test(t, attempts) }

func attempts(t *testing.T) {
	for _, c := range []struct {
		passesAt int32
		outcome  result.Outcome
		says     string
	}{{1, result.Passed, "fine"}, {3, result.Passed, "fine"}, {4, result.Failed, "no answer (after 3 attempts)"}} {
		var n int32
		j := job("a", func(context.Context) check.Finding {
			if n++; n >= c.passesAt {
				return check.Pass("fine")
			}
			return check.Fail(check.ReasonTimeout, "no answer")
		})
		j.Spec.Attempts = new(int32(3))
		j.Spec.IntervalSeconds = new(int32(1))
		start := time.Now()
		r, _ := perform(t.Context(), enough, j)
		if r.Outcome != c.outcome || r.Checks[0].Message != c.says {
			t.Errorf("passes at %d: got %s %q", c.passesAt, r.Outcome, r.Checks[0].Message)
		}
		if waited, want := time.Since(start), time.Duration(min(c.passesAt, 3)-1)*time.Second; waited != want {
			t.Errorf("passes at %d: took %s, want %s", c.passesAt, waited, want)
		}
	}
}

func TestEachAttemptHasItsTimeout(t *testing.T) { synctest.Test(t, eachAttemptHasItsTimeout) }

func eachAttemptHasItsTimeout(t *testing.T) {
	start := time.Now()
	r, got := perform(t.Context(), enough, job("a", hang))
	if took := time.Since(start); took != time.Second || got != "a failed Timeout" || r.Checks[0].Message != "10.0.0.1 did not answer" {
		t.Errorf("%s after %s: %+v", got, took, r)
	}
}

func TestACheckThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	synctest.Test(t, aCheckThatIgnoresItsContextIsLeftBehind)
}

func aCheckThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	stuck := make(chan struct{})
	defer close(stuck)
	start := time.Now()
	_, got := perform(t.Context(), enough, job("a", func(context.Context) check.Finding { <-stuck; return check.Pass("") }))
	if took := time.Since(start); took != 1200*time.Millisecond || got != "a failed Timeout" { // its timeout, and a grace
		t.Errorf("%s after %s", got, took)
	}
}

func TestTheWholeRunHasADeadline(t *testing.T) { synctest.Test(t, theWholeRunHasADeadline) }

func theWholeRunHasADeadline(t *testing.T) {
	j := job("b", hang)
	j.Spec.TimeoutSeconds = new(int32(60))
	r, got := perform(t.Context(), 100*time.Millisecond, job("a", pass), j, job("c", pass, "b"))
	if r.Outcome != result.Failed || got != "a passed, b failed DeadlineExceeded, c skipped DependencyFailed" {
		t.Errorf("got %s: %s", r.Outcome, got)
	}
	if f := r.Checks[0]; !strings.Contains(f.Message, "timeoutSeconds ran out (attempt 1 of 1); until then: 10.0.0.1 did not answer") {
		t.Errorf("got %q", f.Message)
	}
}

func TestInterruption(t *testing.T) { synctest.Test(t, interruption) }

func interruption(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(run.ErrInterrupted) })
	j := job("c", hang)
	j.Spec.TimeoutSeconds = new(int32(60))
	start := time.Now()
	r, got := perform(ctx, enough, job("a", pass), job("b", fail), j, job("d", pass, "c"))
	if took := time.Since(start); took != 50*time.Millisecond {
		t.Errorf("took %s", took)
	}
	// It has not evaluated the node, and reports what it knows.
	if want := "a passed, b failed Timeout, c skipped Interrupted, d skipped DependencyFailed"; r.Outcome != result.InternalError || got != want {
		t.Errorf("got %s: %s, want %s", r.Outcome, got, want)
	}
}

func TestInterruptionBetweenAttempts(t *testing.T) { synctest.Test(t, interruptionBetweenAttempts) }

func interruptionBetweenAttempts(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(run.ErrInterrupted) })
	j := job("a", fail)
	j.Spec.Attempts, j.Spec.IntervalSeconds = new(int32(2)), new(int32(60))
	r, got := perform(ctx, enough, j)
	if got != "a skipped Interrupted" || !strings.Contains(r.Checks[0].Message, "until then: no answer") {
		t.Errorf("got %+v", r)
	}
}

func TestMessagesHoldNoSecrets(t *testing.T) {
	var seen []result.Check
	r := run.Run(context.Background(), []run.Job{job("a", func(context.Context) check.Finding {
		return check.Fail(check.ReasonTimeout, "Get https://me:secret@host: Authorization: Bearer abcdefgh\nmore")
	})}, func(c result.Check) { seen = append(seen, c) })
	const want = "Get https://[redacted]@host: Authorization: [redacted] more"
	if r.Checks[0].Message != want || len(seen) != 1 || seen[0].Message != want {
		t.Errorf("got %+v and %+v", r, seen)
	}
}
