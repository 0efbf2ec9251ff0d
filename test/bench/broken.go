//go:build bench

package main

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// newcomers come at newcomerRate, a second, beside a fleet of which a fifth is broken.
	newcomers    = 300
	newcomerRate = 33
	brokenPrefix = "broken"
	// failFirst is how long the broken nodes have to fail before the newcomers come; exhaustFirst is enough for the retries that they
	// have by default to be exhausted, all at once.
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

// fail lets the nodes come, none of which passes.
func fail(ctx context.Context, f *fleet) error { return f.register(ctx, 0, nil) }

// outage lets the last fifth of the fleet come, and some time later the newcomers.
func outage(ctx context.Context, b *bed, r *result, settings map[string]any, later time.Duration, last func(context.Context, *fleet) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := b.prefix()
	fifth := newFleet(b.client, brokenPrefix+"-"+prefix, r.Nodes/5, gatingTaint, verifiedLabel)
	fresh := newFleet(b.client, prefix, newcomers, gatingTaint, verifiedLabel)
	kubelets := newKubelets(ctx, b.client, time.Second, func(node string, _ int) int32 {
		if strings.HasPrefix(node, brokenPrefix) {
			return 1
		}
		return 0
	})
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
