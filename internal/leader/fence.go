// Package leader keeps a controller that was stopped for a while (SIGSTOP, a suspended machine, a starved CPU) from
// writing beside its successor. The leader election of client-go notices a lost lease only when it next runs. Until
// then every goroutine that resumes goes on writing. The fence checks at each write whether the lease is still ours.
package leader

import (
	"context"
	"sync"
	"time"

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
	// RetryPeriod is the time between two renewals, and until one that failed is tried again. The other replicas read the
	// lease every one to 2.2 periods.
	RetryPeriod = 2 * unit
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
//		RetryPeriod:                         ptr.To(leader.RetryPeriod),
//	})
//
// Without leader election the Fence is nil, and its Transport lets everything through.
//
// The fence cannot detect a pause that no clock of the process shows: a virtual machine that its host stops and
// continues may find both clocks unchanged. So writes also need preconditions (resourceVersion, UID, name).
type Fence struct {
	resourcelock.Interface

	now func() reading

	mu      sync.Mutex
	open    bool    // the last record that was written or read names us
	renewed reading // when the last renewal was sent
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

// Get reads the record. One that names another holder closes the fence at once.
func (f *Fence) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := f.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != f.Identity() {
		f.shut()
	}
	return record, raw, err
}

// Create writes the first record.
func (f *Fence) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return f.write(ctx, record, f.Interface.Create)
}

// Update writes a record: a renewal, or a release, which names nobody.
func (f *Fence) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return f.write(ctx, record, f.Interface.Update)
}

func (f *Fence) write(ctx context.Context, record resourcelock.LeaderElectionRecord,
	send func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if record.HolderIdentity != f.Identity() {
		// Before it is sent: a release takes effect even where its answer is lost.
		f.shut()
		return send(ctx, record)
	}
	// The others count from when they see the record, which cannot be before it was sent; the answer may come much later.
	sent := f.now()
	if err := send(ctx, record); err != nil {
		return err // it may have been written all the same; counting on the renewal before is safe
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
