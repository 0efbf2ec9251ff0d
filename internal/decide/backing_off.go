package decide

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// lookAtBackingOff waits for the time of the next attempt.
func lookAtBackingOff(in Input, _ Evidence, now time.Time) Plan {
	p, _ := between(in, now)
	return p
}

// maxFailureAge is the greatest age at which a failure may lead to an action. Another attempt must confirm an older
// failure. It is the default of exhaustedRetrySeconds.
const maxFailureAge = 10 * time.Minute

// nextAttemptTime is the earliest time of the attempt after the one that r records. It depends on the record's last
// time and counts, and on the present configuration. exhausted is whether the node has exhausted its retries. ok is
// false if there is no next attempt. That is so if the node passed its present checks, or if it exhausted its retries
// and exhaustedRetrySeconds is off.
func nextAttemptTime(in Input, r marks.Record, exhausted bool, now time.Time) (at time.Time, ok bool) {
	c, seed := in.Config, in.Node.UID
	others := ranOtherChecks(r, in.Checks)
	if r.LastOutcome == attempt.Passed && !others {
		return time.Time{}, false
	}
	if r.LastTime == nil || r.LastTime.After(now.Add(clockTolerance)) {
		return now, true // a forged record, or a fast clock, must not delay the node
	}
	wait := time.Duration(0)
	switch {
	case others:
		wait = time.Duration(c.Reconciliation.InitialBackoffSeconds) * time.Second
	case r.LastOutcome == attempt.Failed && exhausted:
		if wait = exhaustedRetry(c); wait == 0 {
			return time.Time{}, false
		}
		wait -= jitter(wait/5, seed, strconv.Itoa(int(r.Sequence)))
	default:
		wait = Backoff(sharedCap(in, r.Shared), r.Attempts+r.Inconclusive, seed)
	}
	return r.LastTime.Add(wait), true
}

// nextAttemptAt is nextAttemptTime of the node's present record.
func nextAttemptAt(in Input, now time.Time) (at time.Time, ok bool) {
	r := in.Node.Record
	at, ok = nextAttemptTime(in, r, exhausts(in, r.Attempts), now)
	if sharing, exhausted := Waits(in); sharing || exhausted {
		if woken := timestamp(in.GroupPassed); r.LastTime != nil && woken.After(*r.LastTime) && (!ok || woken.Before(at)) {
			return woken, true
		}
	}
	return at, ok
}

// nextAttempt reports whether the next attempt is due and, if not, how long until it is; 0 if there is none.
func nextAttempt(in Input, now time.Time) (wait time.Duration, due bool) {
	r := in.Node.Record
	if budgetOf(in).first && !ranOtherChecks(r, in.Checks) || stuckResolved(in, now) || requestSkipsBackoff(r, now) {
		return 0, true
	}
	switch at, again := nextAttemptAt(in, now); {
	case !again:
		return 0, false
	case now.Before(at):
		return at.Sub(now), false
	}
	return 0, true
}

// between is the plan of a node between two attempts: its condition, and when the next one is due. due: it is due now.
func between(in Input, now time.Time) (p Plan, due bool) {
	p.Condition = betweenAttempts(in, now)
	wait, due := nextAttempt(in, now)
	p.requeueAfter(wait)
	if r := in.Node.Record; budgetOf(in).first && !due {
		p.Condition = unknownCondition(marks.ReasonWorkerInconclusive, fmt.Sprintf("Attempt %d ran other checks than the "+
			"node has now; next attempt at %s", r.Sequence, now.Add(wait).UTC().Format(time.RFC3339)), lastTime(r))
	}
	return p, due
}

// Waits reports whether a pass of the node's group makes its next attempt due. A failure that the group shares, or that
// nobody could compare, may be over. So may what exhausted the node's retries, unless exhaustedRetrySeconds is -1.
func Waits(in Input) (sharing, exhausted bool) {
	if !Eligible(in) || in.Node.Deleting || in.LocalWorker != nil {
		return false, false
	}
	return SharesFailure(in), in.Config.Reconciliation.ExhaustedRetrySeconds >= 0 && exhaustedHere(in)
}

// sharedFailures is how many failures a node may share with verified nodes before its backoff goes beyond
// maxBackoffSeconds. With the default backoff, they take half a minute plus the time of six attempts.
const sharedFailures = 5

// sharingEvery is how often the nodes that share an outage are tried together: a node waits as long for each of them.
// sharingLeast is the least of the longest waits. A few nodes so see the end of an outage within a minute, and
// thousands make no storm of workers.
const (
	sharingEvery = time.Second
	sharingLeast = time.Minute
)

// sharedCap is the backoff configuration in an outage that nodes share. Such failures spend no retry, so nothing else
// limits the number of attempts. The cap doubles with each failure after the first sharedFailures, up to
// exhaustedRetry. That is the wait of a node that has exhausted its retries. Of nodes that worked, the number of those
// that share the outage limits it too.
func sharedCap(in Input, shared int32) config.Reconciliation {
	rc, longest := in.Config.Reconciliation, exhaustedRetry(in.Config)
	switch {
	case gateAtStake(in):
		longest = min(cmp.Or(longest, maxFailureAge), max(sharingLeast, time.Duration(in.Sharing)*sharingEvery))
	case !probesBeforeRemediation(in.Config):
		return rc
	}
	most := int64(max(rc.MaxBackoffSeconds, int32(longest/time.Second)))
	for i := int32(sharedFailures); i < shared && int64(rc.MaxBackoffSeconds) < most; i++ {
		rc.MaxBackoffSeconds = int32(min(2*int64(rc.MaxBackoffSeconds), most))
	}
	return rc
}

// exhaustedRetry is how long an exhausted node waits for its next attempt, or 0 if there is none. With deletion on, the
// wait is short enough for an attempt to confirm a failure before it is too old to lead to an action.
func exhaustedRetry(c *config.Config) time.Duration {
	wait := max(0, time.Duration(c.Reconciliation.ExhaustedRetrySeconds)*time.Second)
	if c.NodeManagement.DeleteFailedNodes && (wait == 0 || wait > maxFailureAge) {
		return maxFailureAge
	}
	return wait
}

// Backoff is the wait after the n-th attempt, from 1, that did not pass. It is shortened by up to a fifth, so that
// nodes which failed together are not tried again together. A node and attempt always get the same wait.
func Backoff(rc config.Reconciliation, n int32, seed string) time.Duration {
	first, most := time.Duration(rc.InitialBackoffSeconds)*time.Second, time.Duration(rc.MaxBackoffSeconds)*time.Second
	wait := first
	if rc.RetryBackoff == config.BackoffLinear {
		wait = time.Duration(min(int64(max(n, 1)), int64(most/first)+1)) * first
	} else {
		for i := int32(1); i < n && wait < most; i++ {
			wait *= 2
		}
	}
	wait = min(wait, most)
	return wait - jitter(wait/5, seed, strconv.Itoa(int(n)))
}
