package decide

import (
	"hash/fnv"
	"strconv"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/node"
)

// nextAttempt is the earliest time of the attempt after the one that r records. again is false when
// there is none: the node passed, or its retries are exhausted and nothing may come of another try.
func nextAttempt(c *config.Config, r node.Record, seed string, now time.Time) (at time.Time, again bool) {
	if r.LastOutcome == node.OutcomePassed {
		return time.Time{}, false
	}
	rc := c.Reconciliation
	if r.LastOutcome == node.OutcomeFailed && r.Attempts >= rc.MaxRetries {
		wait := time.Duration(rc.ExhaustedRetrySeconds) * time.Second
		if c.NodeManagement.DeleteFailedNodes {
			// Deletion may be held by what ends by itself, an outage above all; then the node must
			// verify without a hand.
			wait = time.Duration(rc.MaxBackoffSeconds) * time.Second
		}
		return now.Add(wait), wait > 0
	}
	return now.Add(Backoff(rc, r.Attempts+r.Inconclusive, seed)), true
}

// Backoff is the wait after the n-th attempt that did not pass, counted from 1: less up to a fifth, so
// that nodes which failed together do not come back together. The same node and attempt always get the same wait.
func Backoff(rc config.Reconciliation, n int32, seed string) time.Duration {
	first, most := time.Duration(rc.InitialBackoffSeconds)*time.Second, time.Duration(rc.MaxBackoffSeconds)*time.Second
	wait := first
	for i := int32(1); i < n && wait < most; i++ {
		if rc.RetryBackoff == config.BackoffLinear {
			wait += first
		} else {
			wait *= 2
		}
	}
	wait = min(wait, most)
	h := fnv.New32a()
	h.Write([]byte(seed + "/" + strconv.Itoa(int(n))))
	return wait - time.Duration(float64(wait)*0.2*float64(h.Sum32()%1000)/1000)
}
