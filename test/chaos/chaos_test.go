// Package chaos runs the controller as a process, with two replicas, against a real API server and etcd while a random schedule
// of faults goes on, and holds every change that etcd saw to what must never happen. A seed makes the schedule:
//
//	make chaos SEEDS=100
//	SEED=17 go test ./test/chaos -run TestSeeds -v
package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

const (
	// defaultSeeds is how many runs there are, and beside is how many at once.
	defaultSeeds = 10
	beside       = 2
	// disturbed is how long faults go on.
	disturbed = 15 * time.Second
	// patience is how long after the last fault all may take to be as it must be, and still for how long nothing may change then.
	patience = 90 * time.Second
	still    = 2500 * time.Millisecond
)

// fromEnv is a number from the environment.
func fromEnv(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

func TestSeeds(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	program, err := build(t.Context(), root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	first, count := 0, fromEnv("SEEDS", defaultSeeds)
	if only := fromEnv("SEED", -1); only >= 0 {
		first, count = only, 1
	}
	seeds := make(chan uint64, count)
	for seed := first; seed < first+count; seed++ {
		seeds <- uint64(seed) //nolint:gosec // it is not negative
	}
	close(seeds)
	total, began := &tally{}, time.Now()
	var all sync.WaitGroup
	for range min(beside, count) {
		all.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			s, err := newStage(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.cluster.Stop()
			for seed := range seeds {
				if faults := s.run(ctx, program, seed, disturbed, total); len(faults) > 0 {
					t.Errorf("seed %d:\n%s\nto run it again: SEED=%d go test ./test/chaos -run TestSeeds", seed, strings.Join(faults, "\n"), seed)
					keepLogs(t, s, seed)
				}
			}
		})
	}
	all.Wait()
	t.Logf("in %s:\n%s", time.Since(began).Round(time.Second), total)
}

// keepLogs copies what the controllers of a seed logged to where it outlives the test.
func keepLogs(t *testing.T, s *stage, seed uint64) {
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
	t.Logf("the controllers' logs are in %s", to)
}

// run runs one seed and returns what must not have happened.
func (s *stage) run(ctx context.Context, program string, seed uint64, during time.Duration, total *tally) []string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := begin(ctx, s, program, seed, total)
	if err != nil {
		return []string{err.Error()}
	}
	var parts sync.WaitGroup
	for _, r := range w.replicas {
		parts.Go(func() { _ = w.supervise(r) })
	}
	parts.Go(w.play)
	w.disturb(schedule(seed, during))
	faults := w.settle()
	cancel()
	parts.Wait()
	s.check(nil)
	total.add("runs", 1)
	w.check.look(func() {
		for what, n := range w.check.counts {
			total.add(what, n)
		}
	})
	return faults
}

// disturb carries a schedule out, each step beside the others, and returns once all of it is over.
func (w *world) disturb(steps []step) {
	var under sync.WaitGroup
	began := time.Now()
	for _, s := range steps {
		pause(w.ctx, time.Until(began.Add(s.at)))
		w.tally.add("steps", 1)
		w.tally.add("fault: "+s.fault.name, 1)
		under.Go(func() {
			_ = s.fault.do(w.ctx, w, rand.New(rand.NewPCG(s.seed, 0))) //nolint:gosec // no secret
		})
	}
	under.Wait()
}

// settle waits until all is as it must be without faults, and returns what is not or must not have happened.
func (w *world) settle() []string {
	began := time.Now()
	for err := w.calmDown(); err != nil && time.Since(began) < patience; err = w.calmDown() {
		pause(w.ctx, 200*time.Millisecond) // the API server is not up yet
	}
	var quiet time.Time
	for time.Since(began) < patience {
		left := w.check.unsettled(time.Now())
		if faults := w.check.verdict(); len(faults) > 0 {
			return faults
		}
		switch {
		case len(left) > 0:
			quiet = time.Time{}
		case quiet.IsZero():
			quiet = time.Now()
		case time.Since(quiet) > still:
			if err := w.observer.catchUp(w.ctx); err != nil {
				return []string{err.Error()}
			}
			w.tally.add("seconds until settled", int(time.Since(began).Seconds()))
			return w.check.verdict()
		}
		pause(w.ctx, 100*time.Millisecond)
	}
	return append(w.check.verdict(), append([]string{fmt.Sprintf("not settled %s after the last fault:", patience)}, w.check.unsettled(time.Now())...)...)
}
