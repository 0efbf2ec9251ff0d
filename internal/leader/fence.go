// Package leader keeps a controller that was stopped for a while (SIGSTOP, a suspended machine, a starved CPU) from
// writing beside its successor. The leader election of client-go notices a lost lease only when it next runs. Until
// then every goroutine that resumes goes on writing. The fence checks at each write whether the lease is still ours.
package leader

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The times of the election. The fence reckons with them, so the manager is given the same.
const (
	// LeaseDuration is how long the others wait after the last renewal that they saw before one of them leads.
	LeaseDuration = 15 * unit
	// RenewDeadline is how long a leader tries to renew before it gives up, and the age of the last renewal from which on
	// the fence refuses writes. The time between it and LeaseDuration is for requests in flight. The API server may carry
	// out a write some seconds after it was sent, and by then nobody else may lead. A longer limit would leave it no time;
	// a shorter one would refuse writes of a leader whose elector is still content.
	RenewDeadline = 10 * unit
	// RetryPeriod is the time between two renewals, between two looks at another's lease that shows no change, and
	// until what failed is tried again.
	RetryPeriod = 2 * unit
	// Tick is how often the elector is to run. Most of its rounds send nothing: the fence answers from what it last
	// read or wrote until RetryPeriod has passed, or its watch has shown a change. A successor then acts within two
	// ticks of a release, and not within two of client-go's own rounds, which may be nine seconds.
	Tick = unit / 10
)

// Fence is the resource lock of an election, and refuses writes through its Transport unless the lock was renewed
// less than RenewDeadline ago. It is made before the manager, and wraps every client that only the leader may write
// with:
//
//	fence, err := leader.New(rc, namespace, cfg.LeaderElection.ID, nil) // before rc.Wrap: the lease itself is not fenced
//	rc.Wrap(fence.Transport)
//	mgr, err := ctrl.NewManager(rc, ctrl.Options{
//		LeaderElection:                      true,
//		LeaderElectionID:                    cfg.LeaderElection.ID, // the name label of leader_election_master_status
//		LeaderElectionResourceLockInterface: fence,
//		LeaderElectionReleaseOnCancel:       true,
//		LeaseDuration:                       ptr.To(leader.LeaseDuration),
//		RenewDeadline:                       ptr.To(leader.RenewDeadline),
//		RetryPeriod:                         ptr.To(leader.Tick),
//	})
//	mgr.Add(fence) // its watch
//
// Without leader election the Fence is nil, and its Transport lets everything through.
//
// The fence cannot detect a pause that no clock of the process shows: a virtual machine that its host stops and
// continues may find both clocks unchanged. So writes also need preconditions (resourceVersion, UID, name).
type Fence struct {
	resourcelock.Interface

	now func() reading
	// watch begins a watch on the lease; nil where only looks show a change.
	watch func(context.Context) (watch.Interface, error)

	mu      sync.Mutex
	open    bool      // the last record that was written or read names us
	renewed reading   // when the last renewal was sent
	seen    *observed // what was last read; nil once it may have changed
	failed  reading   // when the last request that failed was sent
}

// observed is a record that was read.
type observed struct {
	record *resourcelock.LeaderElectionRecord
	raw    []byte
	at     reading
}

// reading is one instant by both clocks.
type reading struct {
	monotonic time.Time // with a monotonic reading; stands still while the machine is suspended
	wall      time.Time // without; may be set
}

func readClocks() reading {
	now := time.Now()
	return reading{monotonic: now, wall: now.Round(0)}
}

// since is the time between two instants by the clock on which more time passed. A suspended machine stops the
// monotonic clock, but not the wall clock. If the wall clock is set back, the monotonic one counts. If it is set
// forward, the fence is closed until the next renewal, at most for RetryPeriod: a delayed write is better than one
// beside the successor's.
func (r reading) since(earlier reading) time.Duration {
	return max(r.monotonic.Sub(earlier.monotonic), r.wall.Sub(earlier.wall))
}

// Wrap makes a fence of a lock. The lock's own client must not go through the fence's Transport: the first renewal
// would be refused for want of a renewal.
func Wrap(lock resourcelock.Interface) *Fence {
	return &Fence{Interface: lock, now: readClocks}
}

// Get reads the record, or returns what it last read while nothing shows a change. One that names another holder
// closes the fence at once.
func (f *Fence) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if s := f.unchanged(); s != nil {
		return s.record, s.raw, nil
	}
	if err := f.rest(ctx); err != nil {
		return nil, nil, err
	}
	s := &observed{at: f.now()}
	// Before it is read, so that a change which is shown meanwhile is not forgotten.
	f.mu.Lock()
	f.seen = s
	f.mu.Unlock()
	var err error
	if s.record, s.raw, err = f.Interface.Get(ctx); err != nil {
		f.changed()
		return nil, nil, f.note(err, s.at)
	}
	if s.record.HolderIdentity != f.Identity() {
		f.shut()
	}
	return s.record, s.raw, nil
}

// unchanged returns what was read last where it counts still.
func (f *Fence) unchanged() *observed {
	f.mu.Lock()
	s := f.seen
	f.mu.Unlock()
	if s == nil || f.now().since(s.at) >= RetryPeriod {
		return nil
	}
	return s
}

// changed has the next Get ask.
func (f *Fence) changed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = nil
}

// note remembers when a request that failed was sent. One that another replica was faster than has not failed, nor
// one for a lease that is still to be made.
func (f *Fence) note(err error, sent reading) error {
	if !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.failed = sent
	}
	return err
}

// rest waits until RetryPeriod has passed since a request that failed.
func (f *Fence) rest(ctx context.Context) error {
	f.mu.Lock()
	failed := f.failed
	f.mu.Unlock()
	select {
	case <-time.After(RetryPeriod - f.now().since(failed)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Create writes the first record.
func (f *Fence) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return f.write(ctx, record, f.Interface.Create)
}

// Update writes a record: a renewal, or a release, which names nobody. A renewal that comes within RetryPeriod of the
// last is not sent.
func (f *Fence) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if age, open := f.age(); open && age < RetryPeriod && record.HolderIdentity == f.Identity() {
		return nil
	}
	return f.write(ctx, record, f.Interface.Update)
}

func (f *Fence) write(ctx context.Context, record resourcelock.LeaderElectionRecord,
	send func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	defer f.changed()
	if record.HolderIdentity != f.Identity() {
		// Before it is sent: a release takes effect even where its answer is lost.
		f.shut()
		return send(ctx, record)
	}
	if err := f.rest(ctx); err != nil {
		return err
	}
	// The others count from when they see the record, which cannot be before it was sent; the answer may come much later.
	sent := f.now()
	if err := send(ctx, record); err != nil {
		return f.note(err, sent) // it may have been written all the same; counting on the renewal before is safe
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open, f.renewed = true, sent
	return nil
}

func (f *Fence) shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = false
}

// age is the time since the last renewal, and reports whether there is one that counts.
func (f *Fence) age() (time.Duration, bool) {
	// The clocks are read last, so that nothing of the time between counts as younger than it is.
	f.mu.Lock()
	open, renewed := f.open, f.renewed
	f.mu.Unlock()
	return f.now().since(renewed), open
}
