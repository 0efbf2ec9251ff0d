package run_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/run"
)

// sleeper is a check that takes so long.
func sleeper(d time.Duration) check.Func {
	return func(ctx context.Context) check.Finding {
		select {
		case <-time.After(d):
			return check.Pass("slept")
		case <-ctx.Done():
			return check.Fail(check.ReasonTimeout, "10.0.0.1 did not answer: %v", ctx.Err())
		}
	}
}

func slow(j run.Job) run.Job {
	j.Spec.TimeoutSeconds, j.Spec.Attempts = new(int32(10)), new(int32(3))
	return j
}

// A warning is not worth a node's time.
func TestAWarningIsNotWaitedForLong(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name   string
		jobs   []run.Job
		took   time.Duration
		checks string
		says   string
	}{
		{"none of the required ones left", []run.Job{job("a", sleeper(s/2)), slow(advisory(job("b", sleeper(9*s))))}, 1300 * time.Millisecond,
			"a passed, b warning Timeout", "10.0.0.1 did not answer: context deadline exceeded"},
		{"within the second", []run.Job{job("a", pass), advisory(job("b", sleeper(s/2)))}, s / 2, "a passed, b passed", ""},
		{"a required one takes longer", []run.Job{slow(job("a", sleeper(3*s/2))), slow(advisory(job("b", sleeper(2*s))))}, 2 * s, "a passed, b passed", ""},
		{"between attempts", []run.Job{job("a", pass), slow(advisory(job("b", fail)))}, 800 * time.Millisecond, "a passed, b warning Timeout", "no answer"},
		{"and what depends on it", []run.Job{job("a", pass), slow(advisory(job("b", sleeper(9*s)))), advisory(job("c", pass, "b"))}, 800 * time.Millisecond,
			"a passed, b warning Timeout, c skipped DependencyFailed", ""},
		{"one that depends on the last required one", []run.Job{job("a", sleeper(s/2)), advisory(job("b", sleeper(s/2), "a"))}, s, "a passed, b passed", ""},
		{"nothing is required", []run.Job{advisory(job("a", pass)), slow(advisory(job("b", sleeper(2*s))))}, 2 * s, "a passed, b passed", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				r, got := perform(t.Context(), 20*s, c.jobs...)
				if took := time.Since(start); got != c.checks || took != c.took {
					t.Errorf("got %s after %s", got, took)
				}
				for _, check := range r.Checks {
					if check.Outcome == result.Warning && !strings.Contains(check.Message, c.says) {
						t.Errorf("got %+v", check)
					}
				}
			})
		})
	}
}

// Told to stop, a worker does not take what it was waiting for to be broken.
func TestAnInterruptedWarning(t *testing.T) { synctest.Test(t, anInterruptedWarning) }

func anInterruptedWarning(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(run.ErrInterrupted) })
	_, got := perform(ctx, enough, job("a", pass), slow(advisory(job("b", sleeper(5*time.Second)))))
	if got != "a passed, b skipped Interrupted" {
		t.Errorf("got %s", got)
	}
}

// What a warning check asked again until it was no longer waited for is what it warns of.
func TestAWarningThatIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := func(ctx context.Context) check.Finding {
			return retry.Finding(ctx, retry.Lost, func(context.Context) check.Finding {
				return check.Fail(check.ReasonConnectionRefused, "nothing listens")
			})
		}
		start := time.Now()
		r, got := perform(t.Context(), enough, job("a", pass), slow(advisory(job("b", refused))))
		if took := time.Since(start); got != "a passed, b warning ConnectionRefused" || took > time.Second {
			t.Errorf("got %s after %s: %+v", got, took, r)
		}
	})
}

// Attempts are for answers that are final and wrong; within each, what passes by itself is asked again.
func TestAttemptsCountWrongAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, wrong := time.Now(), 0
		flaky := func(ctx context.Context) check.Finding {
			return retry.Finding(ctx, retry.Lost, func(context.Context) check.Finding {
				switch {
				case time.Since(start) < 3*time.Second:
					return check.Fail(check.ReasonConnectionRefused, "nothing listens")
				case wrong == 0:
					wrong++
					return check.Fail(check.ReasonNXDomain, "there is no such name")
				}
				return check.Pass("fine")
			})
		}
		j := job("a", flaky)
		j.Spec.TimeoutSeconds, j.Spec.Attempts = new(int32(10)), new(int32(2))
		if _, got := perform(t.Context(), time.Minute, j); got != "a passed" || wrong != 1 {
			t.Errorf("got %s after %d wrong answers", got, wrong)
		}
	})
}
