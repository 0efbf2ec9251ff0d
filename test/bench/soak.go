//go:build bench

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// What a soak allows: so much more memory and so many more goroutines at the end than once it had warmed up. A goroutine or a kilobyte
// that is left for each node adds up to far more.
const (
	soakMemory     = 1.10
	soakGoroutines = 1.10
)

// soak is a controller for which nodes come, are verified and go, over and over. It is an error if memory or goroutines have grown.
func soak(name string, nodes int) benchCase {
	return benchCase{name: name, what: fmt.Sprintf("%d nodes that come and go for the -duration: memory and goroutines stay", nodes), nodes: nodes, long: true,
		sides: []side{{"controller", func(ctx context.Context, b *bed, r *result) error {
			// A machine that is busy otherwise may let a lease run out, and no other replica is there to need it.
			alone := map[string]any{"leaderElection": map[string]any{"enabled": false}}
			return b.during(ctx, r, alone, "", func(c *controller) error { return c.soak(ctx, r, b.duration) })
		}}}}
}

// soakSample is what a controller held when no node was there, after a generation of them was.
type soakSample struct{ rss, goroutines float64 }

func (c *controller) soak(ctx context.Context, r *result, duration time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var samples []soakSample
	for began := time.Now(); time.Since(began) < duration || len(samples) < 4; {
		if err := c.generation(ctx, len(samples), r); err != nil {
			log, _ := os.ReadFile(c.LogFile)
			return fmt.Errorf("generation %d: %w; the end of the controller's log:\n%s", len(samples)+1, err, log[max(0, len(log)-4096):])
		}
		s, err := c.sample(ctx)
		if err != nil {
			return err
		}
		samples = append(samples, s)
		fmt.Printf("%6s generation %d: %.0f MiB, %.0f goroutines\n", time.Since(began).Round(time.Second), len(samples), s.rss, s.goroutines)
	}
	// The first quarter warms up: caches and the heap grow to what they need.
	quarter := len(samples) / 4
	early, late := mean(samples[quarter:2*quarter]), mean(samples[len(samples)-quarter:])
	r.Values[metricRSSBegin], r.Values[metricRSSEnd] = early.rss, late.rss
	r.Values[metricGoBegin], r.Values[metricGoEnd] = early.goroutines, late.goroutines
	r.Nodes *= len(samples) // that requests are accounted for
	r.Values[metricNodes] = float64(r.Nodes)
	if late.rss > early.rss*soakMemory || late.goroutines > early.goroutines*soakGoroutines {
		return fmt.Errorf("it grew from %.0f MiB and %.0f goroutines to %.0f MiB and %.0f goroutines", early.rss, early.goroutines, late.rss, late.goroutines)
	}
	return nil
}

// generation has nodes come, waits until all are verified and lets them go. Of every twentieth the first worker fails.
func (c *controller) generation(ctx context.Context, number int, r *result) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := load{run: time.Second, failing: 5, rate: 50}
	f := newFleet(c.bed.client, fmt.Sprintf("soak-%d", number), r.Nodes, gatingTaint, verifiedLabel)
	kubelets := newKubelets(ctx, c.bed.client, l.run, l.code(f))
	if err := watch(ctx, c.bed.client, f.see, kubelets.see); err != nil {
		return err
	}
	if err := errors.Join(f.register(ctx, l.rate, nil), f.await(ctx)); err != nil {
		return err
	}
	return errors.Join(f.remove(ctx), pause(ctx, 2*settle))
}

// sample reads what the controller holds.
func (c *controller) sample(ctx context.Context) (s soakSample, err error) {
	p, err := procfs.NewProc(c.Pid())
	if err != nil {
		return s, err
	}
	status, err := p.NewStatus()
	if err != nil {
		return s, err
	}
	page, _, err := c.scrape(ctx)
	if err != nil {
		return s, err
	}
	s.rss = float64(status.VmRSS) / (1 << 20)
	for line := range bytes.Lines(page) {
		if value, ok := strings.CutPrefix(string(line), "go_goroutines "); ok {
			s.goroutines, err = strconv.ParseFloat(strings.TrimSpace(value), 64)
			return s, err
		}
	}
	return s, errors.New("the controller serves no go_goroutines")
}

func mean(samples []soakSample) (m soakSample) {
	for _, s := range samples {
		m.rss += s.rss / math.Max(1, float64(len(samples)))
		m.goroutines += s.goroutines / math.Max(1, float64(len(samples)))
	}
	return m
}
