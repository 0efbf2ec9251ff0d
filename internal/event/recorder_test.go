package event

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

var _ manager.Runnable = (*Recorder)(nil)

var resource = schema.GroupResource{Group: "events.k8s.io", Resource: "events"}

// api is the API server. answer, where set, says what becomes of an event that it does not hold yet.
type api struct {
	answer func(ctx context.Context, e *eventsv1.Event) error

	mu      sync.Mutex
	tries   []string // keys, which the tests put into the note
	written map[string]time.Time
}

func (a *api) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	e := o.(*eventsv1.Event)
	a.mu.Lock()
	a.tries = append(a.tries, e.Note)
	_, exists := a.written[e.Name]
	a.mu.Unlock()
	if exists {
		return apierrors.NewAlreadyExists(resource, e.Name)
	}
	if a.answer != nil {
		if err := a.answer(ctx, e); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.written == nil {
		a.written = map[string]time.Time{}
	}
	a.written[e.Name] = time.Now()
	return nil
}

func hang(ctx context.Context, _ *eventsv1.Event) error {
	<-ctx.Done()
	return ctx.Err()
}

// started runs a recorder until stop, which returns when Start has.
func started(t *testing.T, a *api) (r *Recorder, dropped *atomic.Int64, stop func()) {
	r, dropped = newRecorder(a)
	return r, dropped, start(t, r)
}

func newRecorder(a *api) (*Recorder, *atomic.Int64) {
	var dropped atomic.Int64
	return New(a.Create, func() { dropped.Add(1) }), &dropped
}

func start(t *testing.T, r *Recorder) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Start(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ended with %v", err)
		}
	}
}

func emit(r *Recorder, rank decide.Rank, key string) {
	e := passed(key)
	e.Reason.Rank, e.Message = rank, key
	r.Emit(makeNode("node-1"), time.Now(), e)
}

func TestFullQueueKeepsDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		r, dropped := newRecorder(a)
		for i := range queueLimit {
			emit(r, decide.RankProgress, fmt.Sprint("progress ", i))
		}
		for i := range 96 {
			emit(r, decide.RankDecision, fmt.Sprint("decision ", i))
		}
		for i := range 1000 {
			emit(r, decide.RankOutcome, fmt.Sprint("outcome ", i))
		}
		emit(r, decide.RankProgress, "newest progress")
		if n := dropped.Load(); n != 1097 {
			t.Errorf("%d dropped of 1097 too many", n)
		}
		stop := start(t, r)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(a.tries) != queueLimit || len(a.written) != queueLimit {
			t.Fatalf("%d written in %d tries", len(a.written), len(a.tries))
		}
		// Writes overlap, so their order is exact only to the number of writers.
		for prefix, of := range map[string][]string{"decision": a.tries[:92], "outcome": a.tries[100:1092], "progress": a.tries[1100:4090]} {
			if i := slices.IndexFunc(of, func(key string) bool { return !strings.HasPrefix(key, prefix) }); i >= 0 {
				t.Errorf("%s comes among those of %s", of[i], prefix)
			}
		}
		if slices.Contains(a.tries, "progress 1096") || !slices.Contains(a.tries, "progress 1097") || !slices.Contains(a.tries, "newest progress") {
			t.Error("of the lowest rank, the oldest is not what was dropped")
		}
		stop()
	})
}

func TestFullQueueDropsTheLowest(t *testing.T) {
	at := func(rank decide.Rank, name string) *item {
		return &item{rank: rank, object: &eventsv1.Event{Note: name}}
	}
	q := queue{limit: 2}
	q.add(at(decide.RankDecision, "first"))
	q.add(at(decide.RankOutcome, "outcome"))
	for _, tt := range []struct {
		it   *item
		want string
	}{
		{at(decide.RankProgress, "progress"), "progress"},
		{at(decide.RankOutcome, "second outcome"), "outcome"},
		{at(decide.RankDecision, "second"), "second outcome"},
		{at(decide.RankOutcome, "third outcome"), "third outcome"},
		{at(decide.RankDecision, "third"), "first"},
	} {
		if got := q.add(tt.it); got == nil || got.object.Note != tt.want || q.len() != 2 {
			t.Errorf("%s: dropped %v, want %s; %d queued", tt.it.object.Note, got, tt.want, q.len())
		}
	}
}

func TestEmitDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, dropped, stop := started(t, &api{answer: hang})
		begun := time.Now()
		for i := range 10_000 {
			emit(r, decide.Rank(i%ranks), strconv.Itoa(i))
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("waited for %s", took)
		}
		stop()
		if took := time.Since(begun); took > drainTime {
			t.Errorf("took %s to stop", took)
		}
		emit(r, decide.RankDecision, "late")
		if n := dropped.Load(); n != 10_001 {
			t.Errorf("%d of 10001 events counted as dropped", n)
		}
	})
}

// TestEmitIsFast is TestEmitDoesNotWait by the real clock, from several reconciles at once.
func TestEmitIsFast(t *testing.T) {
	r, _, stop := started(t, &api{answer: func(context.Context, *eventsv1.Event) error { return errors.New("refused") }})
	var reconciles sync.WaitGroup
	begun := time.Now()
	for i := range 10 {
		reconciles.Go(func() {
			for j := range 1000 {
				emit(r, decide.Rank(j%ranks), fmt.Sprint(i, " ", j))
			}
		})
	}
	reconciles.Wait()
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("10,000 events took %s", took)
	}
	stop()
}

func TestSameKeyIsWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		r, dropped := newRecorder(a)
		for range 3 { // before a writer could take one: what is written already is tried again
			emit(r, decide.RankDecision, "1/maxUnhealthy")
			emit(r, decide.RankDecision, "1/budget")
		}
		stop := start(t, r)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(a.written) != 2 || len(a.tries) != 2 {
			t.Errorf("%d events in %d tries", len(a.written), len(a.tries))
		}
		emit(r, decide.RankDecision, "1/budget") // as after a restart: only the API server knows
		time.Sleep(time.Second)
		stop()
		if len(a.written) != 2 || len(a.tries) != 3 || dropped.Load() != 0 {
			t.Errorf("%d events in %d tries, %d dropped", len(a.written), len(a.tries), dropped.Load())
		}
	})
}

func TestDrainsAtStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(context.Context, *eventsv1.Event) error { time.Sleep(10 * time.Millisecond); return nil }}
		r, dropped := newRecorder(a)
		for i := range 1000 {
			emit(r, decide.RankOutcome, strconv.Itoa(i))
		}
		stop := start(t, r)
		begun := time.Now()
		stop()
		if len(a.written) != 1000 || dropped.Load() != 0 {
			t.Errorf("%d of 1000 written, %d dropped", len(a.written), dropped.Load())
		}
		if took := time.Since(begun); took > drainTime {
			t.Errorf("took %s", took)
		}
	})
}

// TestSickServerIsNotPressedAtStop: what it does not take is dropped after a try by each writer.
func TestSickServerIsNotPressedAtStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(context.Context, *eventsv1.Event) error { return apierrors.NewTooManyRequests("slow down", 1) }}
		r, dropped := newRecorder(a)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 1000 {
			emit(r, decide.RankOutcome, strconv.Itoa(i))
		}
		if err := r.Start(ctx); err != nil {
			t.Error(err)
		}
		if len(a.tries) > concurrentWrites || dropped.Load() != 1000 {
			t.Errorf("%d tries, %d of 1000 counted as dropped", len(a.tries), dropped.Load())
		}
	})
}

func TestWritesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		r, _, stop := started(t, a)
		time.Sleep(time.Second)
		for i := range 440 {
			emit(r, decide.RankOutcome, strconv.Itoa(i))
		}
		begun := time.Now()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		var last time.Duration
		for _, at := range a.written {
			last = max(last, at.Sub(begun))
		}
		if len(a.written) != 440 || last < 4900*time.Millisecond || last > 5100*time.Millisecond {
			t.Errorf("%d of 440 written in %s, want 5s: 40 at once and 80 a second", len(a.written), last)
		}
		stop()
	})
}
