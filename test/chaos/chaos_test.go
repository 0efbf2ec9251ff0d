// Package chaos runs the controller as a process, with two replicas, against a real API server and etcd. Meanwhile a
// random schedule causes faults. The test checks every change that etcd recorded for things that must never happen. A
// seed determines the schedule:
//
//	make chaos SEEDS=100
//	SEED=17 go test ./test/chaos -run TestSeeds -v
package chaos

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// defaultSeeds is how many runs there are, and defaultAtOnce how many at once. Each takes half a minute or more.
	defaultSeeds  = 1
	defaultAtOnce = 2
	// longest is what a run takes at most.
	longest = 3 * time.Minute
	// disturbed is how long faults go on.
	disturbed     = 20 * time.Second
	disturbedLess = 12 * time.Second // beside faults that do not end
	// patience is how long after the last fault all may take to be as it must be, and still for how long nothing may change then.
	patience = 90 * time.Second
	still    = 2500 * time.Millisecond
	// strained is for how long a failing pool has to stay as it is. A node may be held by a list of NodeClaims from
	// before it joined, for ten seconds. Only after that is the next deletion held by maxUnhealthy, or by nothing.
	strained = 15 * time.Second
)

// fromEnv is a number from the environment.
func fromEnv(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

func TestSeeds(t *testing.T) {
	program, err := build(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &campaign{program: program, first: fromEnv("FIRST", 0), count: fromEnv("SEEDS", defaultSeeds), report: func(f found) {
		t.Errorf("seed %d:\n%s\nto run it again: SEED=%d go test ./test/chaos -run TestSeeds -v", f.seed, strings.Join(f.what, "\n"), f.seed)
	}}
	if only := fromEnv("SEED", -1); only >= 0 {
		c.first, c.count = only, 1
	}
	if names := os.Getenv("FAULTS"); names != "" {
		c.only = named(t, names)
	}
	if end, ok := t.Deadline(); ok {
		c.until = end.Add(-longest)
	}
	began := time.Now()
	c.run(t.Context())
	if c.left > 0 {
		t.Errorf("%d seeds were not run: the time was over", c.left)
	}
	for _, err := range c.errs {
		t.Error(err)
	}
	t.Logf("in %s:\n%s", time.Since(began).Round(time.Second), &c.total)
}

// campaign is a number of runs, some beside each other.
type campaign struct {
	program      string
	first, count int
	// only are the kinds of faults that there are; all where it is empty.
	only []string
	// untilFault: it ends with the first fault.
	untilFault bool
	// wants is a part of what counts as a fault; any does where it is empty.
	wants string
	// report is called with what a seed has found.
	report func(found)
	// until is when no run begins any more; zero for never.
	until time.Time

	total  tally
	mu     sync.Mutex
	left   int // seeds that were not run for that
	faults []found
	errs   []error
}

// found is what a seed has shown that must not happen.
type found struct {
	seed int
	what []string
}

// run runs all seeds. With untilFault the first fault ends the runs beside it too.
func (c *campaign) run(ctx context.Context) {
	ctrl.SetLogger(logr.Discard())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	seeds := make(chan int, c.count)
	for seed := c.first; seed < c.first+c.count; seed++ {
		seeds <- seed
	}
	close(seeds)
	var all sync.WaitGroup
	for range min(fromEnv("AT_ONCE", defaultAtOnce), c.count) {
		all.Go(func() {
			if err := c.runSome(ctx, seeds, stop); err != nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.errs = append(c.errs, err)
			}
		})
	}
	all.Wait()
}

func (c *campaign) runSome(ctx context.Context, seeds <-chan int, stop context.CancelFunc) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := newStage(ctx)
	if err != nil {
		return err
	}
	defer s.cluster.Stop()
	for seed := range seeds {
		if !c.until.IsZero() && time.Now().After(c.until) {
			c.mu.Lock()
			c.left++
			c.mu.Unlock()
			continue
		}
		what := s.run(ctx, c, uint64(seed)) //nolint:gosec // it is not negative
		if ctx.Err() != nil {
			break // cut short, so what it shows is of no account
		}
		if c.wants != "" {
			what = slices.DeleteFunc(what, func(fault string) bool { return !strings.Contains(fault, c.wants) })
		}
		c.mu.Lock()
		if len(what) > 0 {
			c.faults = append(c.faults, found{seed, what})
			c.report(found{seed, what})
		}
		c.mu.Unlock()
		if len(what) > 0 {
			keepLogs(s, seed)
		}
		if c.untilFault && len(what) > 0 {
			stop()
		}
	}
	return nil
}

// keepLogs copies what the controllers of a seed logged to the folder CHAOS_LOGS, if that is set.
func keepLogs(s *stage, seed int) {
	to := os.Getenv("CHAOS_LOGS")
	if to == "" {
		return
	}
	logs, _ := filepath.Glob(s.cluster.LogFile(fmt.Sprintf("seed-%d-*", seed)))
	for _, log := range append(logs, s.cluster.LogFile("etcd"), s.cluster.LogFile("kube-apiserver")) {
		if b, err := os.ReadFile(log); err == nil {
			_ = os.WriteFile(filepath.Join(to, filepath.Base(log)), b, 0o600)
		}
	}
}

// run runs one seed and returns what must not have happened.
func (s *stage) run(ctx context.Context, c *campaign, seed uint64) []string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := begin(ctx, s, c.program, seed, c.only, &c.total)
	if err != nil {
		return []string{err.Error()}
	}
	var parts sync.WaitGroup
	for _, r := range w.replicas {
		parts.Go(func() { _ = w.supervise(r) })
	}
	parts.Go(w.play)
	parts.Go(w.watchConditions)
	w.warmUp()
	w.disturb(w.with(schedule(seed, w.settings, w.disturbed(), c.only)))
	faults := w.settle()
	cancel()
	parts.Wait()
	s.check(nil)
	if len(faults) > 0 {
		faults = append(faults, fmt.Sprintf("%+v, and for good: %v", w.settings, w.faults))
	}
	c.total.add("runs", 1)
	w.check.look(func() {
		for what, n := range w.check.counts {
			c.total.add(what, n)
		}
	})
	return faults
}

// warmUp waits until two nodes are verified: beside none a failure proves nothing, and nothing would be deleted.
func (w *world) warmUp() {
	for end := time.Now().Add(patience); time.Now().Before(end) && w.ctx.Err() == nil; pause(w.ctx, 50*time.Millisecond) {
		count := 0
		w.check.look(func() {
			for _, n := range w.check.nodes {
				if verified(n.node) {
					count++
				}
			}
		})
		if count >= 2 {
			return
		}
	}
}

// disturb carries a schedule out, each step beside the others, and returns once all of it is over.
func (w *world) disturb(steps []step) {
	var under sync.WaitGroup
	began := time.Now()
	for _, s := range steps {
		if len(w.check.violations()) > 0 || w.ctx.Err() != nil {
			break
		}
		pause(w.ctx, time.Until(began.Add(s.at)))
		w.tally.add("steps", 1)
		w.tally.add("fault: "+s.fault.name, 1)
		under.Go(func() {
			_ = s.fault.do(w.ctx, w, rand.New(rand.NewPCG(s.seed, 0))) //nolint:gosec // no secret
		})
	}
	under.Wait()
}

// disturbed is how long faults that end go on: shorter where it takes longer to show what the others do.
func (w *world) disturbed() time.Duration {
	if len(w.faults) > 0 && !w.settings.clear {
		return disturbedLess
	}
	return disturbed
}

// with adds the faults that do not end to a schedule.
func (w *world) with(steps []step) []step {
	for _, e := range w.faults {
		steps = append(steps, e.step())
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return steps
}

// settle waits until all is as it must be without faults, and returns what is not or must not have happened.
func (w *world) settle() []string {
	began := time.Now()
	for err := w.calmDown(); err != nil && time.Since(began) < patience && w.ctx.Err() == nil; err = w.calmDown() {
		pause(w.ctx, 200*time.Millisecond) // the API server is not up yet
	}
	w.check.calmed()
	quietFor := still
	if len(w.faults) > 0 {
		quietFor = watched
	}
	if slices.ContainsFunc(w.faults, func(e endless) bool { return e.name == poolFails }) {
		quietFor = strained
	}
	var quiet time.Time
	before, waited := 0, 0
	for time.Since(began) < patience && w.ctx.Err() == nil {
		left := w.check.unsettled(time.Now())
		if faults := w.check.violations(); len(faults) > 0 {
			return faults
		}
		switch {
		case len(left) > 0:
			quiet = time.Time{}
		case quiet.IsZero():
			quiet, before, waited = time.Now(), w.written(), w.check.waiting()
		case time.Since(quiet) > quietFor:
			if err := w.observer.catchUp(w.ctx); err != nil {
				return []string{err.Error()}
			}
			w.tally.add("seconds until settled", int(quiet.Sub(began).Seconds()))
			faults := w.check.violations()
			if err := expensive(w.written()-before, max(waited, w.check.waiting()), time.Since(quiet)); err != nil {
				faults = append(faults, err.Error())
			}
			return faults
		}
		pause(w.ctx, 100*time.Millisecond)
	}
	return append(w.check.violations(), append([]string{fmt.Sprintf("not settled %s after the last fault:", patience)}, w.check.unsettled(time.Now())...)...)
}
