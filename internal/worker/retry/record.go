package retry

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// Record is what a check had to ask again. A nil Record takes nothing down.
type Record struct {
	mu sync.Mutex
	// recovered says what was answered at a later try; reason is the first one that an application would have failed
	// with.
	recovered []string
	reason    check.Reason
	// tries and took are those of the question that was put most often in vain.
	tries int
	took  time.Duration
}

type recordKey struct{}

// WithRecord returns a context in which Do takes down what it asked again.
func WithRecord(ctx context.Context) (context.Context, *Record) {
	r := &Record{}
	return context.WithValue(ctx, recordKey{}, r), r
}

func recordOf(ctx context.Context) *Record {
	r, _ := ctx.Value(recordKey{}).(*Record)
	return r
}

// add takes down that the nth of so many tries was answered, and why the one before was not; no reason is silence.
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

// failed takes down that none of so many tries was answered.
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

// Describe adds to a check's finding what was asked again: how often, and, where an application that asks once would
// have failed, that is a warning. What an API server refused at first, its clients repeat too.
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
