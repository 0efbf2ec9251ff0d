// Package retry repeats refused and lost requests for as long as a check has time, because most faults of a starting
// node pass within seconds. The type check.Reason defines which reasons are transient.
package retry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
)

// The backoff between tries doubles, with a jitter of up to half so that the workers of many nodes spread out. There is
// no further try with less than answerTime left.
const (
	firstWait   = 250 * time.Millisecond
	longestWait = 2 * time.Second
	answerTime  = 500 * time.Millisecond
)

// Lost is how long to wait for an answer before another request is sent over a new connection; the first answer may
// still arrive. The new connection matters: the kernel retransmits on the path of the old one, which leads nowhere if
// the connection began before the node's service rules were in place.
const Lost = 2500 * time.Millisecond

// Answer is the result of one try.
type Answer[T any] struct {
	Value T
	Err   error
	// Again is why to retry; NoReason if the answer is final.
	Again check.Reason
	// Text explains Again for a person.
	Text string
	// After is how long the peer asks to wait. Default 0.
	After time.Duration
	// N is the number of the try, from 1. Do sets it.
	N        int
	panicked *recovery.Panic
}

// Do calls ask until an answer is final, within the context's deadline; without a deadline it calls it once. If lost is
// not 0, Do calls ask again, in another goroutine, when an answer takes longer than that, and the first final answer
// counts. If none is final, the result is the last answer that came in time, else that of the first try. ask must
// return soon after its context ends.
func Do[T any](ctx context.Context, lost time.Duration, ask func(context.Context) Answer[T]) Answer[T] {
	began := time.Now()
	deadline, bounded := ctx.Deadline()
	tries, cancel := context.WithCancel(ctx)
	defer cancel()
	answers, returned := make(chan Answer[T], 1), make(chan struct{})
	defer close(returned)
	deliver := func(nth int, a Answer[T]) {
		a.N = nth
		select {
		case answers <- a:
		case <-returned:
		}
	}
	next := time.NewTimer(lost)
	defer next.Stop()
	n, pending := 0, 0
	try := func() {
		n++
		pending++
		nth := n
		next.Stop()
		if lost == 0 {
			deliver(nth, ask(tries))
			return
		}
		recovery.Go(func() { deliver(nth, ask(tries)) },
			func(p *recovery.Panic) { deliver(nth, Answer[T]{panicked: p}) })
		if bounded {
			next.Reset(lost)
		}
	}
	try()

	var last Answer[T]                                // returned if no answer is final
	inTime, planned, done := false, false, ctx.Done() // inTime: last came in time; planned: another try follows
	for wait := firstWait; pending > 0 || planned; {
		select {
		case <-done:
			next.Stop()
			planned, done = false, nil
		case <-next.C:
			if planned = false; time.Until(deadline) >= answerTime {
				try()
			}
		case a := <-answers:
			pending--
			switch {
			case a.panicked != nil:
				panic(a.panicked)
			case a.Again == check.NoReason:
				recordOf(ctx).add(a.N, n, time.Since(began), last.Again, last.Text)
				return a
			case ctx.Err() == nil:
				last, inTime = a, true
			case !inTime && (last.N == 0 || a.N < last.N):
				last = a
			}
			next.Stop()
			left := time.Until(deadline) - answerTime
			if planned = bounded && done != nil && left >= max(a.After, firstWait/2); planned {
				next.Reset(max(a.After, min(wait/2+rand.N(wait), left)))
				wait = min(2*wait, longestWait)
			}
		}
	}
	recordOf(ctx).failed(n, time.Since(began))
	return last
}

// Finding is Do for findings: those with a transient reason are retried.
func Finding(ctx context.Context, lost time.Duration, ask check.Func) check.Finding {
	return Do(ctx, lost, func(ctx context.Context) Answer[check.Finding] {
		f := ask(ctx)
		a := Answer[check.Finding]{Value: f}
		if !f.Passed() && f.Reason.Transient() {
			a.Again, a.Text = f.Reason, f.Message
		}
		return a
	}).Value
}

// Record lists what a check had to retry. A nil Record records nothing.
type Record struct {
	mu sync.Mutex
	// recovered describes what was answered at a later try; reason is the first with which an application that does not
	// retry would have failed.
	recovered []string
	reason    check.Reason
	// tries and took are those of the request that was tried most often without success.
	tries int
	took  time.Duration
}

type recordKey struct{}

// WithRecord returns a context in which Do records its retries.
func WithRecord(ctx context.Context) (context.Context, *Record) {
	r := &Record{}
	return context.WithValue(ctx, recordKey{}, r), r
}

func recordOf(ctx context.Context) *Record {
	r, _ := ctx.Value(recordKey{}).(*Record)
	return r
}

// add records that the nth of so many tries was answered, and why the one before was not; NoReason is a lost answer.
func (r *Record) add(nth, tries int, took time.Duration, reason check.Reason, text string) {
	if r == nil || nth == 1 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if reason == check.NoReason {
		reason, text = check.ReasonTimeout, fmt.Sprintf("no answer within %s", Lost)
	}
	r.recovered = append(r.recovered, fmt.Sprintf("answered at the %s of %s, after %s; before that: %s",
		check.Ordinal(nth), check.Count(tries, "attempt"), took.Round(time.Millisecond), text))
	if r.reason == check.NoReason && reason.Transient() {
		r.reason = reason
	}
}

// Warn records what an application that does less than the worker would have failed with. The context's check then
// passes with a warning only. A text is recorded once.
func Warn(ctx context.Context, reason check.Reason, text string) {
	r := recordOf(ctx)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.recovered, text) {
		return
	}
	r.recovered = append(r.recovered, text)
	if r.reason == check.NoReason {
		r.reason = reason
	}
}

// failed records that none of so many tries was answered.
func (r *Record) failed(tries int, took time.Duration) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if tries > r.tries {
		r.tries, r.took = tries, took
	}
}

// Describe adds the retries to a check's finding. It becomes a warning if an application that does not retry would have
// failed. Refusals of an API server make none: its clients retry them too.
func (r *Record) Describe(f check.Finding) check.Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case f.Reason == check.ReasonInterrupted:
	case f.Passed() && len(r.recovered) > 0:
		f.Message += "; " + strings.Join(r.recovered, "; ")
		if f.Outcome == check.Passed && r.reason != check.NoReason {
			f.Outcome, f.Reason = check.Warned, r.reason
		}
	case !f.Passed() && r.tries > 1:
		f.Message += fmt.Sprintf(" (asked %d times in %s)", r.tries, r.took.Round(100*time.Millisecond))
	}
	return f
}
