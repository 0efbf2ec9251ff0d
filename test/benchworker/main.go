//go:build bench

// Command benchworker measures what a worker costs, with ten checks against a real API server and CoreDNS. It measures
// the time from exec to exit in excess of the slowest check, the peak memory and the size of the binary. It also
// measures how much a worker reads for a peers check whose pods are on 5000 nodes. It exits with 1 if a target is
// missed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

// Targets of a worker.
const (
	maxOverhead = 30 * time.Millisecond
	maxRSS      = 20 << 20
	maxBinary   = 15 << 20
	maxRead     = 200_000 // of a peers check, where its pods are on 5000 nodes
)

func main() {
	worker := flag.String("worker", "bin/kube-node-ready-worker", "the `binary` to measure")
	runs := flag.Int("runs", 50, "how often it is run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	ok, err := bench(ctx, *worker, *runs)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchworker:", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

func bench(ctx context.Context, worker string, runs int) (bool, error) {
	binary, err := os.Stat(worker)
	if err != nil {
		return false, fmt.Errorf("%w; make build makes it", err)
	}
	if worker, err = filepath.Abs(worker); err != nil {
		return false, err
	}
	fmt.Println("starting a control plane and CoreDNS")
	s, err := startSurroundings(ctx)
	if err != nil {
		return false, err
	}
	defer s.stop()
	if err := s.warmUp(ctx, worker); err != nil {
		return false, err
	}
	var all []measurement
	for range runs {
		m, err := measure(ctx, worker, s)
		if err != nil {
			return false, err
		}
		// In a run of its own, so that tracing does not slow down what is timed.
		if m.rss, _, err = traced(worker, s.env); err != nil {
			return false, err
		}
		all = append(all, m)
	}
	ok := report(all, binary.Size())
	fmt.Printf("creating %d pods and their EndpointSlices\n", peerPods)
	reads, err := s.peers(ctx, worker)
	if err != nil {
		return false, err
	}
	for _, r := range reads {
		fmt.Printf("%-34s %10s %10s %10s %10s\n", "read, peers by "+r.by, kilobytes(r.bytes), "", "", kilobytes(maxRead))
		if r.bytes > maxRead {
			fmt.Println("target missed: read, peers by", r.by)
			ok = false
		}
	}
	return ok, nil
}

// measurement of one run.
type measurement struct {
	wall, slowest, cpu time.Duration
	checks             int
	rss                int64
}

// overhead is the time that was not spent waiting for the slowest check.
func (m measurement) overhead() time.Duration { return m.wall - m.slowest }

// measure runs the worker once. Its checks must pass: a failure is quicker or slower than
// what a node pays.
func measure(ctx context.Context, worker string, s *surroundings) (measurement, error) {
	cmd := exec.CommandContext(ctx, worker, "verify")
	cmd.Env = s.env
	start := time.Now()
	output, err := cmd.Output()
	wall := time.Since(start)
	if err != nil {
		return measurement{}, fmt.Errorf("%w: %s", err, output)
	}
	r, err := result.Parse([]byte(strings.TrimSpace(string(output))))
	if err != nil {
		return measurement{}, err
	}
	m := measurement{wall: wall, checks: len(r.Checks), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	for _, c := range r.Checks {
		m.slowest = max(m.slowest, time.Duration(c.DurationMs)*time.Millisecond)
	}
	return m, nil
}

// report prints what was measured beside the targets.
func report(all []measurement, size int64) bool {
	overhead, wall, rss := column(all, measurement.overhead), column(all, func(m measurement) time.Duration { return m.wall }),
		column(all, func(m measurement) int64 { return m.rss })
	fmt.Printf("%d runs with %d checks each, all passed\n", len(all), all[0].checks)
	fmt.Printf("%-34s %10s %10s %10s %10s\n", "", "p50", "p95", "max", "target")
	fmt.Printf("%-34s %10s %10s %10s\n", "exec to exit", ms(at(wall, 50)), ms(at(wall, 95)), ms(at(wall, 100)))
	fmt.Printf("%-34s %10s %10s %10s %10s\n", "exec to exit over slowest check", ms(at(overhead, 50)), ms(at(overhead, 95)), ms(at(overhead, 100)), ms(maxOverhead))
	cpu := column(all, func(m measurement) time.Duration { return m.cpu })
	fmt.Printf("%-34s %10s %10s %10s\n", "processor time", ms(at(cpu, 50)), ms(at(cpu, 95)), ms(at(cpu, 100)))
	fmt.Printf("%-34s %10s %10s %10s %10s\n", "peak RSS", mib(at(rss, 50)), mib(at(rss, 95)), mib(at(rss, 100)), mib(maxRSS))
	fmt.Printf("%-34s %10s %10s %10s %10s\n", "binary", mib(size), "", "", mib(maxBinary))
	ok := true
	for _, target := range []struct {
		what string
		met  bool
	}{
		// The median: what else runs on the machine has the last word on the rest.
		{"exec to exit over slowest check (p50)", at(overhead, 50) <= maxOverhead},
		{"peak RSS (max)", at(rss, 100) <= maxRSS},
		{"binary", size <= maxBinary},
	} {
		if !target.met {
			fmt.Println("target missed:", target.what)
			ok = false
		}
	}
	return ok
}

func column[T int64 | time.Duration](all []measurement, value func(measurement) T) []T {
	values := make([]T, len(all))
	for i, m := range all {
		values[i] = value(m)
	}
	slices.Sort(values)
	return values
}

// at is a percentile of sorted values.
func at[T any](sorted []T, percentile int) T { return sorted[(len(sorted)-1)*percentile/100] }

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }

func kilobytes(n int64) string { return fmt.Sprintf("%.0f kB", float64(n)/1000) }

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
