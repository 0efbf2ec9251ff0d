//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// newcomers come at newcomerRate, a second, beside a fleet of which a fifth is broken.
	newcomers    = 300
	newcomerRate = 33
	brokenPrefix = "broken"
	// failFirst is how long the broken nodes fail before the newcomers come. exhaustFirst is long enough for all of them
	// to exhaust their default number of retries at once.
	failFirst    = 20 * time.Second
	exhaustFirst = 2 * time.Minute
)

// deleting switches deletion on; harried has the broken nodes tried again and again beside it, while the guards hold it.
var (
	deleting = map[string]any{"nodeManagement": map[string]any{"deleteFailedNodes": true}}
	harried  = map[string]any{
		"reconciliation": map[string]any{"maxRetries": 2, "initialBackoffSeconds": 1, "maxBackoffSeconds": 10, "exhaustedRetrySeconds": 10},
		"nodeManagement": deleting["nodeManagement"],
	}
)

// broken is a case of an outage: healthy nodes come while a fifth of the fleet fails and is considered for deletion.
func broken() benchCase {
	return benchCase{name: "broken-5000", what: "300 healthy nodes at 33 a second, beside 5000 verified ones, and beside 4000 verified and 1000 that fail, deletion on: tried again every ten seconds, and with the default settings once their retries are exhausted", nodes: 5000,
		prepare: func(ctx context.Context, b *bed, nodes int) error {
			return verified(ctx, newFleet(b.client, "idle", nodes, gatingTaint, ""), nodes*4/5)
		},
		sides: []side{
			{"sound", func(ctx context.Context, b *bed, r *result) error {
				return outage(ctx, b, r, harried, failFirst, func(ctx context.Context, f *fleet) error { return verified(ctx, f, len(f.names)) })
			}},
			{"a fifth broken", func(ctx context.Context, b *bed, r *result) error {
				return outage(ctx, b, r, harried, failFirst, fail)
			}},
			{"a fifth exhausted", func(ctx context.Context, b *bed, r *result) error {
				return outage(ctx, b, r, deleting, exhaustFirst, fail)
			}},
		}}
}

// held is a case of nodes whose retries are exhausted and whose deletion a guard holds: in a dry run, and more of them than
// maxUnhealthy allows. Each is still verified once in exhaustedRetrySeconds (ten minutes), and not in the minute that is
// measured: an attempt costs what it costs in other cases. With more than one retry, some would be tried again before the
// last one is exhausted.
func held() benchCase {
	settings := map[string]any{
		"nodeManagement": map[string]any{"deleteFailedNodes": true, "remediation": map[string]any{"dryRun": true}},
		"reconciliation": map[string]any{"maxRetries": 1},
	}
	return benchCase{name: "held-2000", what: "2000 of 5000 nodes whose retries are exhausted and whose deletion is held, in a dry run", nodes: 5000,
		prepare: func(ctx context.Context, b *bed, nodes int) error {
			return verified(ctx, newFleet(b.client, "idle", nodes, gatingTaint, ""), nodes*3/5)
		},
		sides: []side{{"held", func(ctx context.Context, b *bed, r *result) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			f := newFleet(b.client, brokenPrefix+"-"+b.prefix(), r.Nodes*2/5, gatingTaint, verifiedLabel)
			kubelets := newKubelets(ctx, b.client, time.Second, brokenFails)
			if err := watch(ctx, b.client, func(*corev1.Node) {}, kubelets.see); err != nil {
				return err
			}
			return errors.Join(b.during(ctx, r, settings, "", func(c *controller) error {
				if err := errors.Join(fail(ctx, f), c.calms(ctx)); err != nil {
					return err
				}
				before, _, err := usage(c.Pid())
				if err != nil {
					return err
				}
				if err := c.begin(); err != nil {
					return err
				}
				profiled := make(chan error)
				go func() { profiled <- c.save(ctx, fmt.Sprintf("profile?seconds=%.0f", idleFor.Seconds()/2)) }()
				if err := errors.Join(pause(ctx, idleFor), <-profiled); err != nil {
					return err
				}
				after, _, err := usage(c.Pid())
				_, writes, _, events, err2 := b.audit.requests(c.mark)
				r.Values[metricCore], r.Values[metricIdle] = 100*(after-before)/idleFor.Seconds(), float64(writes+events)
				return errors.Join(err, err2)
			}), f.remove(ctx))
		}}}}
}

// brokenFails is the exit code of a worker: it fails on broken nodes alone. Control probes must pass elsewhere, or the
// failures count as shared and exhaust no retries.
func brokenFails(node string, _ int) int32 {
	if strings.HasPrefix(node, brokenPrefix) {
		return 1
	}
	return 0
}

// fail lets the nodes come, none of which passes.
func fail(ctx context.Context, f *fleet) error { return f.register(ctx, 0, nil) }

// outage lets the last fifth of the fleet come, and some time later the newcomers.
func outage(ctx context.Context, b *bed, r *result, settings map[string]any, later time.Duration, last func(context.Context, *fleet) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := b.prefix()
	fifth := newFleet(b.client, brokenPrefix+"-"+prefix, r.Nodes/5, gatingTaint, verifiedLabel)
	fresh := newFleet(b.client, prefix, newcomers, gatingTaint, verifiedLabel)
	kubelets := newKubelets(ctx, b.client, time.Second, brokenFails)
	if err := watch(ctx, b.client, func(n *corev1.Node) { fresh.see(n) }, kubelets.see); err != nil {
		return err
	}
	err := b.during(ctx, r, settings, "", func(*controller) error {
		if err := last(ctx, fifth); err != nil {
			return err
		}
		if err := pause(ctx, later); err != nil {
			return err
		}
		if err := fresh.register(ctx, newcomerRate, nil); err != nil {
			return err
		}
		return fresh.await(ctx)
	})
	if err != nil {
		return err
	}
	for _, m := range []string{metricWrites, metricReads, metricEvents} {
		delete(r.Values, m) // those of the broken ones and of the newcomers are not told apart
	}
	r.times(fresh.waits())
	return errors.Join(fresh.remove(ctx), fifth.remove(ctx))
}
