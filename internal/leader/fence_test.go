package leader

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// clock is both of a machine's clocks, each moved by itself.
type clock struct {
	mu  sync.Mutex
	now reading
}

func newClock() *clock { return &clock{now: readClocks()} }

func (c *clock) read() reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) { c.set(d, d) }

func (c *clock) set(monotonic, wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = reading{monotonic: c.now.monotonic.Add(monotonic), wall: c.now.wall.Add(wall)}
}

// lock is a resource lock in memory; during runs within each of its calls and says how it ends.
type lock struct {
	mu       sync.Mutex
	identity string
	record   *resourcelock.LeaderElectionRecord
	during   func() error
}

func (l *lock) call() error {
	if l.during == nil {
		return nil
	}
	return l.during()
}

func (l *lock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.call(); err != nil {
		return nil, nil, err
	}
	record := *l.record
	return &record, []byte(record.HolderIdentity), nil
}

func (l *lock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.call(); err != nil {
		return err
	}
	l.record = &record
	return nil
}

func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

func (l *lock) RecordEvent(string) {}
func (l *lock) Identity() string   { return l.identity }
func (l *lock) Describe() string   { return "default/lock" }

const me = "host_1"

func ours() resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: me, LeaseDurationSeconds: 15}
}

func newFence() (*Fence, *lock, *clock) {
	l, c := &lock{identity: me}, newClock()
	f := Wrap(l)
	f.now = c.read
	return f, l, c
}

func renew(t *testing.T, f *Fence) {
	t.Helper()
	if err := f.Update(t.Context(), ours()); err != nil {
		t.Fatal(err)
	}
}

// roundTripper is the transport below the fence.
type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// try sends a request through the fence and returns its error.
func try(t *testing.T, f *Fence, method string) error {
	t.Helper()
	sent := false
	next := roundTripper(func(*http.Request) (*http.Response, error) {
		sent = true
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	req, err := http.NewRequestWithContext(t.Context(), method, "https://api/api/v1/nodes/a", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := f.Transport(next).RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if sent != (err == nil) {
		t.Errorf("%s: sent %t with error %v", method, sent, err)
	}
	return err
}

func passes(t *testing.T, f *Fence, when string) {
	t.Helper()
	if err := try(t, f, http.MethodPatch); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}

func refused(t *testing.T, f *Fence, when string) {
	t.Helper()
	if err := try(t, f, http.MethodPatch); !errors.Is(err, ErrNotLeading) {
		t.Errorf("%s: a write ended with %v, want ErrNotLeading", when, err)
	}
}

func TestWritesNeedAFreshRenewal(t *testing.T) {
	f, _, c := newFence()
	refused(t, f, "never renewed")
	if err := f.Create(t.Context(), ours()); err != nil {
		t.Fatal(err)
	}
	passes(t, f, "lease created")
	c.pass(RenewDeadline - time.Millisecond)
	passes(t, f, "just young enough")
	c.pass(time.Millisecond)
	refused(t, f, "at the limit")
	c.pass(time.Hour)
	refused(t, f, "stopped for an hour")
	renew(t, f)
	passes(t, f, "nobody else took the lease, and it was renewed")
}

func TestOnlyWritesAreFenced(t *testing.T) {
	f, _, _ := newFence()
	for _, method := range []string{"", http.MethodGet, http.MethodHead, http.MethodOptions} {
		if err := try(t, f, method); err != nil {
			t.Errorf("%q refused: %v", method, err)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect, http.MethodTrace} {
		if err := try(t, f, method); !errors.Is(err, ErrNotLeading) {
			t.Errorf("%s ended with %v", method, err)
		}
	}
	if err := try(t, nil, http.MethodDelete); err != nil {
		t.Errorf("refused without leader election: %v", err)
	}
}

func TestRefusalNamesTheWrite(t *testing.T) {
	f, _, c := newFence()
	renew(t, f)
	c.pass(12 * time.Second)
	err := try(t, f, http.MethodDelete)
	var refusal *RefusedError
	if !errors.As(err, &refusal) || refusal.Method != http.MethodDelete || refusal.Path != "/api/v1/nodes/a" {
		t.Errorf("got %#v", err)
	}
	if want := "DELETE /api/v1/nodes/a refused: not leading: the lease was last renewed 12s ago"; err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestFailedRenewalDoesNotCount(t *testing.T) {
	synctest.Test(t, failedRenewalDoesNotCount)
}

func failedRenewalDoesNotCount(t *testing.T) {
	f, l, c := newFence()
	l.during = func() error { return errors.New("timeout") }
	_ = f.Create(t.Context(), ours())
	refused(t, f, "create failed")

	l.during = nil
	renew(t, f)
	c.pass(8 * time.Second)
	l.during = func() error { return errors.New("conflict") }
	_ = f.Update(t.Context(), ours())
	passes(t, f, "the renewal before still counts")
	c.pass(2 * time.Second)
	refused(t, f, "and no longer than it would have")
}

func TestRenewalCountsFromWhenItWasSent(t *testing.T) {
	f, l, c := newFence()
	l.during = func() error { c.pass(9 * time.Second); return nil }
	renew(t, f)
	passes(t, f, "answered after 9 s")
	c.pass(time.Second)
	refused(t, f, "sent 10 s ago")
	l.during = func() error { c.pass(11 * time.Second); return nil }
	renew(t, f)
	refused(t, f, "answered after 11 s")
}

func TestReleaseShuts(t *testing.T) {
	f, l, _ := newFence()
	renew(t, f)
	l.during = func() error { refused(t, f, "while the release is under way"); return nil }
	if err := f.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}); err != nil {
		t.Fatal(err)
	}
	refused(t, f, "released")

	l.during = nil
	renew(t, f)
	l.during = func() error { return errors.New("connection reset") }
	_ = f.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1})
	refused(t, f, "released, and the answer lost")
}

func TestAnotherHolderShuts(t *testing.T) {
	f, l, c := newFence()
	renew(t, f)
	if _, _, err := f.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	passes(t, f, "our own record read")
	l.record.HolderIdentity = "host_2"
	c.pass(RetryPeriod)
	l.during = func() error { return errors.New("unavailable") }
	_, _, _ = f.Get(t.Context())
	passes(t, f, "nothing read")
	c.pass(RetryPeriod)
	l.during = nil
	if _, _, err := f.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused(t, f, "another's record read")
}

func TestEitherClockMaySayTooOld(t *testing.T) {
	for _, tt := range []struct {
		name            string
		monotonic, wall time.Duration
		pass            bool
	}{
		{"machine suspended: only the wall clock went on", 0, time.Minute, false},
		{"stopped, and the wall clock set back meanwhile", time.Minute, -time.Hour, false},
		{"wall clock set back", time.Second, -time.Hour, true},
		{"wall clock set back by less than passed", 9 * time.Second, time.Second, true},
		{"wall clock stood still", RenewDeadline, 0, false},
		{"wall clock set forward", time.Second, time.Hour, false},
		{"wall clock set forward a little", time.Second, 2 * time.Second, true},
	} {
		f, _, c := newFence()
		renew(t, f)
		c.set(tt.monotonic, tt.wall)
		if tt.pass {
			passes(t, f, tt.name)
		} else {
			refused(t, f, tt.name)
		}
		renew(t, f)
		passes(t, f, tt.name+", then renewed")
	}
}

func TestClocksAreReadApart(t *testing.T) {
	before := readClocks()
	if strings.Contains(before.wall.String(), " m=") || !strings.Contains(before.monotonic.String(), " m=") {
		t.Errorf("got %v", before)
	}
	time.Sleep(time.Millisecond)
	if d := readClocks().since(before); d < time.Millisecond || d > time.Minute {
		t.Errorf("a millisecond took %s", d)
	}
}
