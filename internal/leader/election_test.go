package leader

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var _ utilnet.RoundTripperWrapper = (*transport)(nil)

// store is the lease that several locks see.
type store struct {
	mu     sync.Mutex
	record *resourcelock.LeaderElectionRecord
}

// replica is a lock on a store. It may be cut off from it.
type replica struct {
	lock
	store *store
	cut   bool
}

func (r *replica) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.cut {
		return nil, nil, errors.New("no route to host")
	}
	if r.store.record == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "lock")
	}
	record := *r.store.record
	return &record, []byte(record.HolderIdentity + record.RenewTime.Format(time.RFC3339Nano)), nil
}

func (r *replica) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.cut {
		return errors.New("no route to host")
	}
	r.store.record = &record
	return nil
}

func (r *replica) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return r.Update(ctx, record)
}

func elect(ctx context.Context, f *Fence) {
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: f, LeaseDuration: LeaseDuration, RenewDeadline: RenewDeadline, RetryPeriod: RetryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
}

func leads(f *Fence) bool {
	age, open := f.age()
	return open && age < RenewDeadline
}

// TestOneWritesAtATime runs client-go's elector on two replicas. The first is cut off from the lease, which stops
// renewals as a stopped process does, but leaves its goroutines running.
func TestOneWritesAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		lease := &store{}
		first, second := &replica{store: lease, lock: lock{identity: "first"}}, &replica{store: lease, lock: lock{identity: "second"}}
		a, b := Wrap(first), Wrap(second)
		var electors sync.WaitGroup
		electors.Go(func() { elect(ctx, a) })
		time.Sleep(time.Second)
		electors.Go(func() { elect(ctx, b) })

		watch := func(d time.Duration) (byA, byB int) {
			for range d / (100 * time.Millisecond) {
				synctest.Wait()
				if leads(a) && leads(b) {
					t.Error("both may write")
				}
				if leads(a) {
					byA++
				}
				if leads(b) {
					byB++
				}
				time.Sleep(100 * time.Millisecond)
			}
			return byA, byB
		}
		if byA, byB := watch(time.Minute); byA != 600 || byB != 0 {
			t.Errorf("the leader may write in %d of 600 steps, the other in %d", byA, byB)
		}
		lease.mu.Lock()
		first.cut = true
		lease.mu.Unlock()
		if byA, byB := watch(30 * time.Second); byA > 100 || byB == 0 {
			t.Errorf("cut off, the old leader may write in %d steps, the new one in %d", byA, byB)
		}
		cancel()
		electors.Wait()
		if leads(b) {
			t.Error("the new leader may write after it released the lease")
		}
	})
}

// TestSuccessorActsSoon measures how long nobody leads. The other replica reads the lease every one to 2.2 periods.
func TestSuccessorActsSoon(t *testing.T) {
	const look = RetryPeriod*22/10 + 100*time.Millisecond
	for name, c := range map[string]struct {
		abrupt bool
		within time.Duration
	}{
		"released": {false, look},
		"killed":   {true, LeaseDuration + 2*look},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lease := &store{}
				first, second := &replica{store: lease, lock: lock{identity: "first"}}, &replica{store: lease, lock: lock{identity: "second"}}
				a, b := Wrap(first), Wrap(second)
				ctx, cancel := context.WithCancel(t.Context())
				ofA, stop := context.WithCancel(ctx)
				var running sync.WaitGroup
				defer running.Wait()
				defer cancel()
				defer stop()
				running.Go(func() { elect(ofA, a) })
				time.Sleep(time.Second)
				running.Go(func() { elect(ctx, b) })
				time.Sleep(time.Minute)
				went := time.Now()
				if c.abrupt {
					lease.mu.Lock()
					first.cut = true
					lease.mu.Unlock()
				} else {
					stop()
				}
				for !leads(b) {
					time.Sleep(10 * time.Millisecond)
				}
				if took := time.Since(went); took > c.within {
					t.Errorf("nobody led for %s, want %s at most", took, c.within)
				}
			})
		})
	}
}

func TestRequestEndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := Wrap(&lock{identity: me})
		renew(t, f)
		time.Sleep(8 * time.Second)
		hangs := roundTripper(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, "https://api/api/v1/nodes/a", http.NoBody)
		start := time.Now()
		_, err := f.Transport(hangs).RoundTrip(req) //nolint:bodyclose // it has none
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNotLeading) {
			t.Errorf("got %v: it may have been carried out, so it is not a refusal", err)
		}
		if took := time.Since(start); took != LeaseDuration-8*time.Second {
			t.Errorf("cut off after %s", took)
		}
	})
}

func TestAnswerIsReadAfterRoundTrip(t *testing.T) {
	f := Wrap(&lock{identity: me})
	renew(t, f)
	var during context.Context
	next := roundTripper(func(req *http.Request) (*http.Response, error) {
		during = req.Context()
		return &http.Response{Body: io.NopCloser(strings.NewReader("answer"))}, nil
	})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api/", http.NoBody)
	resp, err := f.Transport(next).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(resp.Body); string(got) != "answer" || during.Err() != nil {
		t.Errorf("read %q, context %v", got, during.Err())
	}
	if err := resp.Body.Close(); err != nil || during.Err() == nil {
		t.Errorf("closed with %v, and the time limit still runs", err)
	}
}

type closeNoted struct {
	io.Reader
	closed bool
}

func (c *closeNoted) Close() error { c.closed = true; return nil }

func TestRefusalClosesTheBody(t *testing.T) {
	f := Wrap(&lock{identity: me})
	sent := &closeNoted{Reader: strings.NewReader("{}")}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api/", sent)
	if _, err := f.Transport(nil).RoundTrip(req); err == nil || !sent.closed { //nolint:bodyclose // it has none
		t.Errorf("error %v, body closed %t", err, sent.closed)
	}
}

// TestNewLeavesTheLeaseUnfenced renews by a client made of a configuration that is fenced afterwards.
func TestNewLeavesTheLeaseUnfenced(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]string{} // user agents by request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[req.Method+" "+req.URL.Path] = req.UserAgent()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"id","namespace":"ns"}}`)
	}))
	defer server.Close()
	cfg := &rest.Config{Host: server.URL, UserAgent: "controller/1"}
	f, err := New(cfg, "ns", "id", nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Wrap(f.Transport)
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	post := func() error {
		resp, err := client.Post(server.URL+"/api/v1/pods", "application/json", strings.NewReader("{}"))
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	if err := post(); !errors.Is(err, ErrNotLeading) {
		t.Errorf("before the first renewal: %v", err)
	}
	record := resourcelock.LeaderElectionRecord{HolderIdentity: f.Identity(), LeaseDurationSeconds: 15}
	if err := f.Create(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	f.RecordEvent("became leader") // without a recorder: nothing
	if err := post(); err != nil {
		t.Errorf("leading: %v", err)
	}
	if err := f.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}); err != nil {
		t.Fatal(err)
	}
	if err := post(); !errors.Is(err, ErrNotLeading) {
		t.Errorf("released: %v", err)
	}
	const leases = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
	if seen["POST "+leases] != "controller/1/leader-election" || seen["PUT "+leases+"/id"] == "" {
		t.Errorf("the server saw %v", seen)
	}
	if cfg.UserAgent != "controller/1" || cfg.Timeout != 0 {
		t.Errorf("New changed its caller's configuration: %+v", cfg)
	}
}

func TestNewNamesEachProcess(t *testing.T) {
	cfg := &rest.Config{Host: "https://api"}
	a, err := New(cfg, "ns", "id", nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(cfg, "ns", "id", nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.Identity() == b.Identity() || a.Describe() != "ns/id" {
		t.Errorf("%s and %s on %s", a.Identity(), b.Identity(), a.Describe())
	}
	for _, missing := range [][2]string{{"", "id"}, {"ns", ""}} {
		if _, err := New(cfg, missing[0], missing[1], nil); err == nil {
			t.Errorf("made a lock %q", missing)
		}
	}
}
