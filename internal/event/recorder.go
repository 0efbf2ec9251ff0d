// Package event emits Kubernetes events without ever slowing a reconcile. Events are for people; what a controller
// decided is on the node itself. So they are queued, paced, and, where too many come at once, the least useful are
// dropped and counted.
package event

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

const (
	// queueLimit is what a fleet that arrives at once may have to say: some four events for each of a thousand nodes.
	queueLimit = 4096
	// writesPerSecond and writeBurst are low on purpose: events must not compete with the writes that release nodes.
	writesPerSecond = 80
	writeBurst      = 40
	// concurrentWrites keep that pace up to 50 ms a write, and let one that hangs hold up no more than its share.
	concurrentWrites = 4
	// writeTimeout bounds a try. client-go waits within it where the API server asks to (Retry-After).
	writeTimeout = 5 * time.Second
	// maxTries, 1, 3, 9 and 27 s apart, outlast the restart of a cluster's only API server.
	maxTries      = 5
	firstRetry    = time.Second
	retryFactor   = 3
	maxRetryAfter = 30 * time.Second
	// drainTime is how long a stopping controller goes on writing what is queued. Its successor waits for it.
	drainTime = 5 * time.Second
)

// Recorder emits events about decisions. It replaces the recorder of client-go, which names events by the time, so a
// repeated decision would be a second event. When many nodes arrive at once, that recorder also drops the last events,
// whatever their importance.
type Recorder struct {
	create   func(ctx context.Context, obj client.Object, opts ...client.CreateOption) error
	dropped  func()
	instance string
	pace     flowcontrol.RateLimiter
	wake     chan struct{} // holds a token when there may be something to write

	mu     sync.Mutex
	queue  queue
	names  map[string]struct{} // of the events that are queued or being written
	closed bool
}

// New makes a recorder; Start runs it. create writes an object, as client.Client.Create does. Any goroutine may call
// dropped, for each event that will not be written. It must not block.
func New(create func(context.Context, client.Object, ...client.CreateOption) error, dropped func()) *Recorder {
	return &Recorder{
		create: create, dropped: dropped, instance: instance(),
		pace:  flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writeBurst),
		wake:  make(chan struct{}, 1),
		queue: queue{limit: queueLimit},
		names: map[string]struct{}{},
	}
}

// Emit queues an event on the node, which happened at the given time. It never blocks; a full queue drops the least
// useful event. One that is on its way already (same node, reason and key) is not queued again.
func (r *Recorder) Emit(node *corev1.Node, at time.Time, e decide.Event) {
	r.EmitOn(onNode(node), at, e)
}

func onNode(n *corev1.Node) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}
}

// EmitOn is Emit for another object without a namespace.
func (r *Recorder) EmitOn(of corev1.ObjectReference, at time.Time, e decide.Event) {
	rank := min(max(e.Reason.Rank, decide.RankProgress), decide.RankDecision)
	r.put(&item{object: object(r.instance, of, at, e), rank: rank})
}

// put queues an item, for the first time or for another try.
func (r *Recorder) put(it *item) {
	name := it.object.Name
	r.mu.Lock()
	if _, ok := r.names[name]; ok && it.tries == 0 {
		r.mu.Unlock()
		return
	}
	dropped := it
	if !r.closed {
		r.names[name] = struct{}{}
		dropped = r.queue.add(it)
	}
	if dropped != nil {
		delete(r.names, dropped.object.Name)
	}
	r.mu.Unlock()
	if dropped != nil {
		r.dropped()
	}
	r.signal()
}

func (r *Recorder) signal() {
	select {
	case r.wake <- struct{}{}:
	default: // there is a token already
	}
}

// take returns what may be tried at the given time, or how long to wait; 0 is until there is something.
func (r *Recorder) take(now time.Time) (*item, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	it, wait := r.queue.take(now)
	if it != nil && r.queue.len() > 0 {
		r.signal() // the token woke one writer; there may be work for another
	}
	return it, wait
}

// Start writes events until ctx is done, and then what is still queued, for 5 s at most. It is a manager.Runnable of
// the leader.
func (r *Recorder) Start(ctx context.Context) error {
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var writers sync.WaitGroup
	for range concurrentWrites {
		writers.Go(func() {
			r.serve(ctx, writing)
			r.drain(writing)
		})
	}
	<-ctx.Done()
	defer time.AfterFunc(drainTime, stop).Stop()
	writers.Wait()
	r.close(ctx)
	return nil
}

// serve writes until ctx is done.
func (r *Recorder) serve(ctx, writing context.Context) {
	// The token comes first: what is written is then the highest rank of that moment.
	for r.pace.Wait(ctx) == nil {
		it := r.next(ctx)
		if it == nil {
			return
		}
		r.write(writing, it)
	}
}

// next waits for something to write; nil if ctx ends first.
func (r *Recorder) next(ctx context.Context) *item {
	for ctx.Err() == nil {
		it, wait := r.take(time.Now())
		if it != nil {
			return it
		}
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-r.wake:
		case <-due:
		case <-ctx.Done():
		}
	}
	return nil
}

// drain writes what is left, unpaced: the reconciles end as well, and the lease is not released before this has. A
// server that does not take a write is not pressed: once each writer has met that, what is left is dropped.
func (r *Recorder) drain(writing context.Context) {
	for writing.Err() == nil {
		it, _ := r.take(time.Now().Add(maxRetryAfter)) // what waits for another try gets it now
		if it == nil || !r.write(writing, it) {
			return
		}
	}
}

// close drops what is left, and all that comes later.
func (r *Recorder) close(ctx context.Context) {
	r.mu.Lock()
	left := r.queue.len()
	r.closed, r.queue, r.names = true, queue{}, map[string]struct{}{}
	r.mu.Unlock()
	for range left {
		r.dropped()
	}
	if left > 0 {
		log.FromContext(ctx).Info("some events were not written before the stop", "events", left)
	}
}

// write tries once, and reports whether the API server answered for good: written or refused.
func (r *Recorder) write(ctx context.Context, it *item) bool {
	try, cancel := context.WithTimeout(ctx, writeTimeout)
	err := r.create(try, it.object)
	cancel()
	if err == nil || apierrors.IsAlreadyExists(err) {
		r.forget(it)
		return true
	}
	again := transient(err)
	it.tries++
	if again && it.tries < maxTries {
		it.notBefore = time.Now().Add(retryDelay(it.tries, err))
		r.put(it)
		return false
	}
	r.forget(it)
	r.dropped()
	log.FromContext(ctx).Error(err, "cannot write the event", "node", it.object.Regarding.Name, "reason", it.object.Reason,
		"note", it.object.Note, "tries", it.tries)
	return !again
}

func (r *Recorder) forget(it *item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.names, it.object.Name)
}

// transient reports whether another try may succeed. What is no answer of the API server's (no connection, no answer
// in time, not leading at the moment) may well.
func transient(err error) bool {
	class := apierr.Of(err, apierr.Create)
	return class == apierr.Later || class == apierr.Unknown
}

func retryDelay(tries int, err error) time.Duration {
	delay := firstRetry
	for range tries - 1 {
		delay *= retryFactor
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		delay = max(delay, time.Duration(seconds)*time.Second)
	}
	return min(delay, maxRetryAfter)
}
