package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

func TestBackoff(t *testing.T) {
	rc := config.Reconciliation{InitialBackoffSeconds: 1, MaxBackoffSeconds: 30, RetryBackoff: config.BackoffExponential}
	linear := rc
	linear.RetryBackoff = config.BackoffLinear
	for _, tc := range []struct {
		rc   config.Reconciliation
		n    int32
		most time.Duration
	}{{rc, 0, time.Second}, {rc, 1, time.Second}, {rc, 2, 2 * time.Second}, {rc, 3, 4 * time.Second}, {rc, 5, 16 * time.Second}, {rc, 6, 30 * time.Second}, {rc, 1 << 30, 30 * time.Second},
		{linear, 0, time.Second}, {linear, 1, time.Second}, {linear, 3, 3 * time.Second}, {linear, 40, 30 * time.Second}, {linear, 1 << 30, 30 * time.Second}} {
		got := Backoff(tc.rc, tc.n, "seed")
		if got > tc.most || got < tc.most*8/10 {
			t.Errorf("%s after %d: %s, want between 80%% and 100%% of %s", tc.rc.RetryBackoff, tc.n, got, tc.most)
		}
		if got != Backoff(tc.rc, tc.n, "seed") {
			t.Error("the same node and attempt got another wait")
		}
	}
	if Backoff(rc, 6, "a") == Backoff(rc, 6, "b") {
		t.Error("two nodes wait exactly alike")
	}
}

// nextIn is when the next attempt starts, seen from now.
func nextIn(in Input) (time.Duration, bool) {
	at, ok := nextAttemptTime(in, in.Node.Record, exhausts(in, in.Node.Record.Attempts), now)
	return at.Sub(now), ok
}

// The next attempt is computed from the record's last time and the present configuration.
func TestTheNextAttemptFollowsThePresentConfiguration(t *testing.T) {
	const none = time.Duration(-1)
	forged := func(d time.Duration) func(*Input) {
		return func(in *Input) { in.Node.Record.NextAttemptTime = ago(-d) }
	}
	for name, tc := range map[string]struct {
		in          Input
		least, most time.Duration
	}{
		"exhausted, off":                     {failing(5, exhaustedRetrySeconds(-1)), none, none},
		"then on":                            {failing(5, exhaustedRetrySeconds(600)), 480 * time.Second, 600 * time.Second},
		"then on, long after":                {failing(5, recordedAgo(time.Hour), exhaustedRetrySeconds(600)), -52 * time.Minute, -50 * time.Minute},
		"shorter":                            {failing(5, exhaustedRetrySeconds(60)), 48 * time.Second, time.Minute},
		"maxRetries raised":                  {failing(5, maxRetries(6)), 12800 * time.Millisecond, 16 * time.Second},
		"maxRetries lowered":                 {failing(3, maxRetries(2)), 480 * time.Second, 600 * time.Second},
		"maxBackoffSeconds lowered":          {failing(4, func(in *Input) { in.Config.Reconciliation.MaxBackoffSeconds = 2 }), 1600 * time.Millisecond, 2 * time.Second},
		"a forged time in the far future":    {failing(2, forged(time.Hour)), 1600 * time.Millisecond, 2 * time.Second},
		"a forged time in the past":          {failing(2, forged(-time.Hour)), 1600 * time.Millisecond, 2 * time.Second},
		"a forged time, exhausted":           {failing(5, forged(-time.Hour), exhaustedRetrySeconds(-1)), none, none},
		"recorded in the future":             {failing(2, recordedAgo(-time.Hour)), 0, 0},
		"recorded in the future, exhausted":  {failing(5, recordedAgo(-time.Hour), exhaustedRetrySeconds(-1)), 0, 0},
		"recorded on a clock a little ahead": {failing(2, recordedAgo(-30*time.Second)), 31600 * time.Millisecond, 32 * time.Second},
		"a record without a time":            {failing(2, func(in *Input) { in.Node.Record.LastTime = nil }), 0, 0},
		"exhausted, inconclusive since":      {failing(5, inconclusiveSince), 24 * time.Second, 30 * time.Second},
		"passed":                             {verified(), none, none},
		"deletion on, never tried again":     {failing(5, deleting, exhaustedRetrySeconds(-1)), 480 * time.Second, 600 * time.Second},
		"deletion on, tried too seldom":      {failing(5, deleting, exhaustedRetrySeconds(86400)), 480 * time.Second, 600 * time.Second},
		"deletion on, tried often":           {failing(5, deleting, exhaustedRetrySeconds(60)), 48 * time.Second, 60 * time.Second},
		"other checks":                       {puzzling(8, underOtherChecks), time.Second, time.Second},
		"other checks, exhausted":            {failing(5, underOtherChecks), time.Second, time.Second},
		"other checks, long ago":             {failing(5, underOtherChecks, recordedAgo(time.Hour)), -time.Hour, 0},
		"passed other checks":                {verified(underOtherChecks), -time.Hour, 0},
		"forged counts":                      {puzzling(1<<29, func(in *Input) { in.Node.Record.Attempts = 1 << 29 }), 24 * time.Second, 30 * time.Second},
	} {
		got, ok := nextIn(tc.in)
		if !ok {
			got = none
		}
		if got < tc.least || got > tc.most {
			t.Errorf("%s: in %s (%v), want between %s and %s", name, got, ok, tc.least, tc.most)
		}
		plan, _ := ask(t, tc.in, world{})
		if tc.in.Node.Gated && (plan.Step == StepStart) != (ok && got <= 0) {
			t.Errorf("%s: step %q", name, plan.Step)
		}
	}
}

func inconclusiveSince(in *Input) {
	in.Node.Record.LastOutcome, in.Node.Record.LastReason, in.Node.Record.Inconclusive = attempt.Inconclusive, attempt.ReasonImagePull, 1
}

// Nodes that exhausted their retries together are not tried again together.
func TestTheExhaustedWaitIsSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 100 {
		in := failing(5, func(in *Input) { in.Node.UID = fmt.Sprintf("u%d", i) })
		wait, _ := nextIn(in)
		if again, _ := nextIn(in); again != wait || wait < 480*time.Second || wait > 600*time.Second {
			t.Fatalf("waits %s, then %s", wait, again)
		}
		seen[wait.Truncate(10*time.Second)] = true
	}
	if len(seen) < 8 {
		t.Errorf("100 nodes come back within %d periods of 10 s", len(seen))
	}
}

// An old failure may not lead to a deletion. Nor may a failure whose time lies in the future.
func TestOnlyAFreshFailureMayDelete(t *testing.T) {
	for name, tc := range map[string]struct {
		age  time.Duration
		step Step
	}{
		"just now":                  {0, StepDelete},
		"some minutes ago":          {7 * time.Minute, StepDelete},
		"as old as it may be":       {maxFailureAge, StepStart},
		"an hour ago":               {time.Hour, StepStart},
		"on a clock a little ahead": {-30 * time.Second, StepDelete},
		"in the future":             {-time.Hour, StepStart},
	} {
		if plan, _ := ask(t, failing(5, deleting, recordedAgo(tc.age)), deletable()); plan.Step != tc.step {
			t.Errorf("%s: %q, want %q", name, plan.Step, tc.step)
		}
	}
	undated := failing(5, deleting, func(in *Input) { in.Node.Record.LastTime = nil })
	if plan, _ := ask(t, undated, deletable()); plan.Step != StepStart {
		t.Errorf("without a time: %q", plan.Step)
	}
}

// The NextAttemptTime in the record is the time that decisions compute later.
func TestNextAttemptTimeIsWhatWasComputed(t *testing.T) {
	for name, in := range map[string]Input{
		"failed":    given(with(pod(1, ended(attempt.Failed)))),
		"exhausted": failing(4, with(pod(5, ended(attempt.Failed)))),
		"held":      failing(5, deleting, func(in *Input) { in.Node.DoNotDelete = true }),
	} {
		plan, _ := ask(t, in, deletable())
		r := plan.Change.Record
		at, ok := nextAttemptTime(in, r, exhausts(in, r.Attempts), now)
		if !ok || r.NextAttemptTime == nil || !r.NextAttemptTime.Equal(at) {
			t.Errorf("%s: records %v, computes %v", name, r.NextAttemptTime, at)
		}
		after := given(func(in *Input) { in.Node.Record, in.Node.HasRecord = r, true })
		if c := betweenAttempts(after, now); c == nil || c.Reason == marks.ReasonVerifying {
			t.Errorf("%s: says %+v", name, c)
		}
	}
}

// An outage that verified nodes share exhausts no node's retries. Attempts become as rare as those of a node without
// retries left. Once a probe passes, they soon return to their usual frequency.
func TestASharedOutageBacksOff(t *testing.T) {
	at := now
	in := given(deleting, func(in *Input) { in.Node.HasRecord = true })
	failed := func(outcome attempt.Outcome) time.Duration {
		number := in.Node.Record.Sequence + 1
		seen := func(o *workerpod.Observation) {
			o.Seen.First, o.Seen.Running, o.Seen.Result = at.Add(-time.Second), at.Add(-time.Second), at
		}
		in.Pods = []workerpod.Observation{pod(number, ended(attempt.Failed), seen)}
		other := probe("control", ended(outcome), seen, subject(fmt.Sprintf("u1/%d", number)))
		plan, _ := askAt(t, in, world{fleet: healthyNodes(1, ""), probes: []workerpod.Observation{other}}, at)
		in.Node.Record = plan.Change.Record
		next, ok := nextAttemptTime(in, in.Node.Record, exhausts(in, in.Node.Record.Attempts), at)
		if !ok || plan.Recorded == nil || !next.Equal(*in.Node.Record.NextAttemptTime) {
			t.Fatalf("%+v", plan)
		}
		wait := next.Sub(at)
		at = next
		return wait
	}
	var waits []time.Duration
	for range 14 {
		waits = append(waits, failed(attempt.Failed))
	}
	for i, seconds := range map[int]time.Duration{5: 32, 6: 64, 7: 128, 8: 256, 9: 512, 10: 600, 13: 600} {
		if most := seconds * time.Second; waits[i] > most || waits[i] < most*8/10 {
			t.Errorf("shared failure %d: waits %s, want nearly %s", i+1, waits[i], most)
		}
	}
	if r := in.Node.Record; r.Shared != 14 || r.Attempts != 0 || r.Held != GuardControlProbe {
		t.Errorf("%+v", r)
	}
	off := in
	off.Config = given(func(in *Input) { in.Config.Reconciliation.ExhaustedRetrySeconds = 60; deleting(in) }).Config
	next, _ := nextAttemptTime(off, off.Node.Record, exhausts(off, off.Node.Record.Attempts), at)
	if wait := next.Sub(*off.Node.Record.LastTime); wait > time.Minute {
		t.Errorf("exhaustedRetrySeconds 60: %s", wait)
	}
	if wait := failed(attempt.Passed); wait > 30*time.Second || in.Node.Record.Shared != 0 {
		t.Errorf("a probe passed: waits %s, record %+v", wait, in.Node.Record)
	}
}
