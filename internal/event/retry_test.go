package event

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

func TestTransientErrorsAreRetried(t *testing.T) {
	for name, fault := range map[string]error{
		"429":           apierrors.NewTooManyRequests("slow down", 20),
		"500":           apierrors.NewInternalError(errors.New("etcd")),
		"503":           apierrors.NewServiceUnavailable("starting"),
		"504":           apierrors.NewTimeoutError("etcd", 1),
		"no connection": errors.New("connection refused"),
		"no answer":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var healthy atomic.Bool
				a := &api{answer: func(ctx context.Context, e *eventsv1.Event) error {
					switch {
					case e.Note == "fine" || healthy.Load():
						return nil
					case fault == nil:
						return hang(ctx, e)
					}
					return fmt.Errorf("create: %w", fault)
				}}
				r, dropped, stop := started(t, a)
				emit(r, decide.RankDecision, "faulty")
				emit(r, decide.RankProgress, "fine")
				synctest.Wait()
				if len(a.written) != 1 {
					t.Errorf("the other event waits: %d written", len(a.written))
				}
				time.Sleep(12 * time.Second)
				healthy.Store(true)
				time.Sleep(30 * time.Second)
				synctest.Wait()
				if len(a.written) != 2 || dropped.Load() != 0 {
					t.Errorf("%d written after %q, %d dropped", len(a.written), a.tries, dropped.Load())
				}
				stop()
			})
		})
	}
}

func TestHangingWritesHoldUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(ctx context.Context, e *eventsv1.Event) error {
			if e.Note != "fine" {
				return hang(ctx, e)
			}
			return nil
		}}
		r, _, stop := started(t, a)
		synctest.Wait() // all writers idle
		for i := range concurrentWrites - 1 {
			emit(r, decide.RankDecision, fmt.Sprint("hangs ", i))
		}
		emit(r, decide.RankProgress, "fine")
		synctest.Wait()
		if len(a.written) != 1 || len(a.tries) != concurrentWrites {
			t.Errorf("%d written, tried %q", len(a.written), a.tries)
		}
		stop()
	})
}

// TestWritersWakeEachOther: two events may leave one token, and each deserves a writer; what is not due must not keep
// them awake.
func TestWritersWakeEachOther(t *testing.T) {
	r, _ := newRecorder(&api{})
	emit(r, decide.RankOutcome, "1")
	emit(r, decide.RankOutcome, "2")
	<-r.wake
	first, _ := r.take(time.Now())
	if first == nil || len(r.wake) != 1 {
		t.Fatalf("took %v, %d tokens for the other", first, len(r.wake))
	}
	<-r.wake
	first.notBefore = time.Now().Add(time.Minute)
	r.queue.byRank[decide.RankOutcome] = []*item{first}
	if it, wait := r.take(time.Now()); it != nil || wait <= 0 || len(r.wake) != 0 {
		t.Errorf("took %v, wait %s, %d tokens", it, wait, len(r.wake))
	}
}

func TestRetryWaitsAsLongAsItIsAskedTo(t *testing.T) {
	asked := apierrors.NewTooManyRequests("slow down", 20)
	for tries, want := range map[int][2]time.Duration{
		1: {time.Second, 20 * time.Second}, 2: {3 * time.Second, 20 * time.Second}, 4: {27 * time.Second, 27 * time.Second},
	} {
		if got := [2]time.Duration{retryDelay(tries, errors.New("reset")), retryDelay(tries, asked)}; got != want {
			t.Errorf("after %d tries: %v, want %v", tries, got, want)
		}
	}
	if got := retryDelay(1, apierrors.NewTooManyRequests("slow down", 3600)); got != maxRetryAfter {
		t.Errorf("asked to wait an hour: %s", got)
	}
}

func TestGivesUpAtLast(t *testing.T) {
	for name, tt := range map[string]struct {
		fault error
		tries int
	}{
		"server down":  {apierrors.NewInternalError(errors.New("etcd")), maxTries},
		"forbidden":    {apierrors.NewForbidden(resource, "", errors.New("no role")), 1},
		"invalid":      {apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "", nil), 1},
		"no such path": {&apierrors.StatusError{ErrStatus: apierrors.NewGenericServerResponse(http.StatusNotFound, "create", resource, "", "", 0, true).ErrStatus}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &api{answer: func(context.Context, *eventsv1.Event) error { return tt.fault }}
				r, dropped, stop := started(t, a)
				emit(r, decide.RankDecision, "1")
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if len(a.tries) != tt.tries || dropped.Load() != 1 {
					t.Errorf("%d tries, want %d; %d dropped", len(a.tries), tt.tries, dropped.Load())
				}
				if len(r.names) != 0 || r.queue.len() != 0 {
					t.Errorf("%d names and %d events are kept", len(r.names), r.queue.len())
				}
				stop()
			})
		})
	}
}
