// Package retry asks again what was refused or lost, for as long as a check has time: most of what is wrong with a
// new node while it starts is over a few seconds later. Which reasons are worth asking again is for check.Reason to
// say.
package retry

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
)

// The waits between a try that failed and the next one, each twice the last, and shorter or longer by up to half so
// that the workers of many nodes do not all come at once. answerTime is what a last try gets: without so much time
// left, there is none.
const (
	firstWait   = 250 * time.Millisecond
	longestWait = 2 * time.Second
	answerTime  = 500 * time.Millisecond
)

// Lost is how long an answer may take before the question is put once more, over a connection of its own. The first
// one is still waited for. A new connection matters: the kernel repeats packets on a path that it has remembered, which
// leads nowhere when the connection began before the node's service rules were there.
const Lost = 2500 * time.Millisecond

// Answer is what one try came to.
type Answer[T any] struct {
	Value T
	// Again is why the question should be put again; empty if the answer is final.
	Again check.Reason
	// Text says for a person what Again stands for.
	Text string
	// After is how long the peer asks to be left alone. Default 0.
	After time.Duration
}

// numbered is the answer to the nth try, from 1.
type numbered[T any] struct {
	Answer[T]
	n        int
	panicked *recovery.Panic
}

// Do asks until an answer is final, and within the context's deadline; without a deadline it asks once. If lost is
// not 0, the question is put again beside one that has had no answer for so long, and the first answer that is final
// counts; ask then runs in goroutines of its own. Where none is, the result is the last answer that came in time,
// else that of the first try. ask must return soon after its context ends.
func Do[T any](ctx context.Context, lost time.Duration, ask func(context.Context) Answer[T]) T {
	began := time.Now()
	deadline, bounded := ctx.Deadline()
	tries, cancel := context.WithCancel(ctx)
	defer cancel()
	answers, returned := make(chan numbered[T], 1), make(chan struct{})
	defer close(returned)
	deliver := func(a numbered[T]) {
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
		if lost == 0 { // one at a time
			answers <- numbered[T]{Answer: ask(tries), n: nth}
			return
		}
		recovery.Go(func() { deliver(numbered[T]{Answer: ask(tries), n: nth}) },
			func(p *recovery.Panic) { deliver(numbered[T]{n: nth, panicked: p}) })
		if bounded {
			next.Reset(lost)
		}
	}
	try()

	var last numbered[T]                              // what is returned if no answer is final
	inTime, planned, done := false, false, ctx.Done() // last came in time; another try is to come
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
				recordOf(ctx).add(a.n, n, time.Since(began), last.Again, last.Text)
				return a.Value
			case ctx.Err() == nil:
				last, inTime = a, true
			case !inTime && (last.n == 0 || a.n < last.n):
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
	return last.Value
}

// Finding is Do for findings: those with a transient reason are asked for again.
func Finding(ctx context.Context, lost time.Duration, ask check.Func) check.Finding {
	return Do(ctx, lost, func(ctx context.Context) Answer[check.Finding] {
		f := ask(ctx)
		a := Answer[check.Finding]{Value: f}
		if !f.Passed() && f.Reason.Transient() {
			a.Again, a.Text = f.Reason, f.Message
		}
		return a
	})
}
