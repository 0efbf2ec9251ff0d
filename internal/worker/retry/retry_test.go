package retry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

const s = time.Second

// recovers answers with a reason for so long, and then passes.
func recovers(after time.Duration, reason check.Reason) check.Func {
	began := time.Now()
	return func(context.Context) check.Finding {
		if time.Since(began) < after {
			return check.Fail(reason, "not yet")
		}
		return check.Pass("fine")
	}
}

// silent gives no answer to what is asked before a time, and answers at once what is asked later.
func silent(until, after time.Duration) check.Func {
	began := time.Now()
	return func(ctx context.Context) check.Finding {
		wait := after
		if time.Since(began) < until {
			wait = time.Hour
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return check.Fail(check.ReasonInterrupted, "stopped")
			}
			return check.Fail(check.ReasonTimeout, "nothing for %s", time.Since(began))
		case <-time.After(wait):
			return check.Pass("fine")
		}
	}
}

func TestWhatIsAskedAgain(t *testing.T) {
	for _, c := range []struct {
		name    string
		check   func() check.Func
		outcome check.Outcome
		reason  check.Reason
		says    string
		// The time that it takes.
		least, most time.Duration
	}{
		{"refused for 3 s", func() check.Func { return recovers(3*s, check.ReasonConnectionRefused) },
			// The last try in vain may come just before 3 s, and the longest wait after it is 2 s and a half of that.
			check.Warned, check.ReasonConnectionRefused, "fine; answered at the ", 3 * s, 6 * s},
		{"refused all the time", func() check.Func { return recovers(time.Hour, check.ReasonConnectionRefused) },
			check.Failed, check.ReasonConnectionRefused, "not yet (asked ", 9 * s, 9500 * time.Millisecond},
		{"final at once", func() check.Func { return recovers(3*s, check.ReasonNXDomain) },
			check.Failed, check.ReasonNXDomain, "not yet", 0, 0},
		{"could not tell", func() check.Func { return recovers(3*s, check.ReasonUnknown) },
			check.Inconclusive, check.ReasonUnknown, "not yet", 0, 0},
		{"silent for 3 s", func() check.Func { return silent(3*s, 0) }, check.Warned, check.ReasonTimeout,
			"fine; answered at the 3rd of 3 attempts, after 5s; before that: no answer within 2.5s", 5 * s, 5 * s},
		{"slow", func() check.Func { return silent(0, 4*s) }, check.Passed, check.NoReason, "fine", 4 * s, 4 * s},
		{"silent all the time", func() check.Func { return silent(time.Hour, 0) },
			check.Failed, check.ReasonTimeout, "nothing for 10s (asked 4 times in 10s)", 10 * s, 10 * s},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*s)
				defer cancel()
				began := time.Now()
				ctx, record := retry.WithRecord(ctx)
				f := record.Describe(retry.Finding(ctx, retry.Lost, c.check()))
				if f.Outcome != c.outcome || f.Reason != c.reason || !strings.HasPrefix(f.Message, c.says) {
					t.Errorf("got %+v", f)
				}
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

// Every transient reason is asked again, whichever check gives it, and no other is.
func TestReasons(t *testing.T) {
	for _, reason := range []check.Reason{
		check.ReasonTimeout, check.ReasonConnectionRefused, check.ReasonConnectionReset, check.ReasonUnreachable,
		check.ReasonPermissionDenied, check.ReasonConnectionFailed, check.ReasonResolutionUnavailable,
		check.ReasonServerFailure, check.ReasonQueryRefused, check.ReasonTruncated,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*s)
			defer cancel()
			ctx, record := retry.WithRecord(ctx)
			f := record.Describe(retry.Finding(ctx, 0, recovers(3*s, reason)))
			if f.Outcome != check.Warned || f.Reason != reason {
				t.Errorf("%s: got %+v", reason, f)
			}
		})
	}
}

// What asks the question is left alone for as long as it asks, and not asked in vain where there is not so much time.
func TestThePeerSaysWhen(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		tries int
		took  time.Duration
	}{{4 * s, 3, 8 * s}, {time.Hour, 1, 0}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*s)
			defer cancel()
			began, tries := time.Now(), 0
			retry.Do(ctx, retry.Lost, func(context.Context) retry.Answer[int] {
				tries++
				return retry.Answer[int]{Again: check.ReasonTooManyRequests, After: c.after}
			})
			if took := time.Since(began); tries != c.tries || took != c.took {
				t.Errorf("%s: %d tries in %s", c.after, tries, took)
			}
		})
	}
}

// Nothing is repeated without a deadline, and an interruption ends it at once.
func TestItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if f := retry.Finding(t.Context(), retry.Lost, recovers(3*s, check.ReasonTimeout)); f.Passed() {
			t.Errorf("got %+v", f)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*s)
		time.AfterFunc(2200*time.Millisecond, cancel)
		began := time.Now()
		retry.Finding(ctx, 0, recovers(time.Hour, check.ReasonTimeout))
		if took := time.Since(began); took != 2200*time.Millisecond {
			t.Errorf("took %s", took)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*s)
		time.AfterFunc(s, cancel)
		if f := retry.Finding(ctx, retry.Lost, silent(time.Hour, 0)); f.Reason != check.ReasonInterrupted {
			t.Errorf("got %+v", f)
		}
	})
}

func TestAPanicIsTheCallers(t *testing.T) {
	for _, lost := range []time.Duration{0, retry.Lost} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("it went unnoticed")
				}
			}()
			retry.Finding(t.Context(), lost, func(context.Context) check.Finding { panic("oops") })
		}()
	}
}
