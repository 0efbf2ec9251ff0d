//go:build bench

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

const (
	// calm is how long a controller has to evaluate the whole fleet before it counts as idle. After that, it must write
	// nothing for the time quiet. The benchmark waits for that for at most the time unrest.
	calm   = 15 * time.Second
	quiet  = 5 * time.Second
	unrest = 8 * time.Minute
	// idleFor is how long it is measured, several rounds of its resync.
	idleFor = time.Minute
	scrapes = 5
)

// idle is a case without work: verified nodes whose kubelets renew their status.
func idle(name, what string, nodes int) benchCase {
	at := func(rate float64) side {
		return side{fmt.Sprintf("%.0f a second", rate), func(ctx context.Context, b *bed, r *result) error { return idles(ctx, b, r, rate, nil) }}
	}
	return benchCase{name: name, what: what, nodes: nodes, sides: []side{at(17), at(300)}, prepare: func(ctx context.Context, b *bed, nodes int) error {
		return verified(ctx, newFleet(b.client, "idle", nodes, gatingTaint, ""), nodes)
	}}
}

// fleetOf is a case with as many nodes as the largest clusters have, and with nodes as large as those. It measures the
// fleet at rest, when the leader is stopped, and beside newcomers. Kubelets renew a status every five minutes
// (nodeStatusReportFrequency).
func fleetOf(nodes int) benchCase {
	rate, come := max(1, float64(nodes)/300), newcomers
	gogc := ""
	if nodes >= 100000 {
		come, gogc = 1000, "20"
	}
	c := benchCase{name: fmt.Sprintf("fleet-%d", nodes), nodes: nodes, long: true, plane: largePlane, gogc: gogc,
		what: fmt.Sprintf("%d verified nodes of 9 KiB, whose kubelets send their status %.0f times a second together: at rest, when the leader is stopped, when a rule that holds on all of them comes, and beside %d newcomers at %d a second",
			nodes, rate, come, newcomerRate),
		prepare: largeFleet,
		sides: []side{
			{"at rest", func(ctx context.Context, b *bed, r *result) error { return idles(ctx, b, r, rate, unverifiedOnly) }},
			{"leader stopped", func(ctx context.Context, b *bed, r *result) error {
				r.Nodes = 1
				return succeeds(ctx, b, r, syscall.SIGTERM)
			}},
			{"a rule", ruled},
		}}
	l := load{run: time.Second, rate: newcomerRate, large: true, settings: unverifiedOnly}
	for _, by := range []actor{lightest, likeUs, ourselves} {
		c.sides = append(c.sides, side{string(by), func(ctx context.Context, b *bed, r *result) error {
			r.Nodes = come
			return l.verification(ctx, b, r, by)
		}})
	}
	return c
}

var (
	// largePlane has an etcd that holds a hundred thousand nodes of 9 KiB, and several versions of each.
	largePlane     = cluster.Options{WithoutControllerManager: true, WithoutScheduler: true, EtcdQuota: 8 << 30}
	unverifiedOnly = map[string]any{"metrics": map[string]any{"perNode": "unverified"}}
)

// largeFleet registers verified nodes of 9 KiB.
func largeFleet(ctx context.Context, b *bed, nodes int) error {
	f := newFleet(b.client, "idle", nodes, gatingTaint, "")
	f.large = true
	return errors.Join(define(ctx, b), verified(ctx, f, nodes))
}

// ruled is a turn in which a rule comes that holds on all nodes, until it counts them all as released.
func ruled(ctx context.Context, b *bed, r *result) error {
	const rule = `{"apiVersion": "readiness.node.x-k8s.io/v1alpha1", "kind": "NodeReadinessRule", "metadata": {"name": "fleet"}, "spec": {
  "nodeSelector": {"matchLabels": {"bench": "true"}}, "enforcementMode": "continuous", "conditions": [{"type": "Ready", "requiredStatus": "True"}],
  "taint": {"key": "` + ruleTaint + `", "effect": "NoSchedule"}}}`
	return b.during(ctx, r, unverifiedOnly, "", func(c *controller) error {
		if err := c.calms(ctx); err != nil {
			return err
		}
		before, _, err := usage(c.Pid())
		if err != nil {
			return err
		}
		at, all := time.Now(), fmt.Appendf(nil, "\"fleet\",state=\"released\"} %d\n", r.Nodes)
		if err := install.Apply(ctx, b.cluster, []byte(rule)); err != nil {
			return err
		}
		for {
			page, _, err := c.scrape(ctx)
			if err != nil {
				return err
			}
			if bytes.Contains(page, all) {
				break
			}
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
		r.Values[metricRuled] = time.Since(at).Seconds()
		after, _, err := usage(c.Pid())
		r.Values[metricChanges] = after - before
		return errors.Join(err, b.dropRule(ctx, "fleet"))
	})
}

// verified registers nodes as ones that passed long ago.
func verified(ctx context.Context, f *fleet, nodes int) error {
	f.names = f.names[:nodes]
	now := metav1.Now().UTC()
	return f.each(ctx, 0, func(ctx context.Context, name string) error {
		n := f.node(name)
		n.Spec.Taints = nil
		n.Labels[verifiedLabel] = "true"
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: marks.ConditionType, Status: corev1.ConditionTrue,
			Reason: marks.ReasonChecksPassed, Message: "All required checks passed in 1s, attempt 1"})
		n, err := f.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		record := marks.Record{NodeUID: string(n.UID), BootID: n.Status.NodeInfo.BootID, Sequence: 1, LastOutcome: attempt.Passed, DurationMs: 1000, LastTime: &now, VerifiedTime: &now}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{marks.AnnotationRecord: record.Encode()}}})
		if err == nil {
			_, err = f.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		return err
	})
}

// calms waits until the controller has nothing left to write, events included: they are sent at a limited rate.
func (c *controller) calms(ctx context.Context) error {
	err := pause(ctx, calm)
	for end := time.Now().Add(unrest); err == nil && time.Now().Before(end); {
		mark, writes, events := c.bed.audit.mark(), 0, 0
		if err = pause(ctx, quiet); err == nil {
			if _, writes, _, events, err = c.bed.audit.requests(mark); err == nil && writes+events == 0 {
				return nil
			}
		}
	}
	return err
}

func idles(ctx context.Context, b *bed, r *result, rate float64, settings map[string]any) error {
	f := newFleet(b.client, "idle", r.Nodes, gatingTaint, "")
	least, err := b.startInformer(ctx)
	if err != nil {
		return err
	}
	return errors.Join(b.during(ctx, r, settings, "", func(c *controller) error {
		if err := c.calms(ctx); err != nil {
			return err
		}
		before, _, err := usage(c.Pid())
		leastBefore, _, err2 := usage(least.Process.Pid)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if err := c.begin(); err != nil {
			return err
		}
		profiled := make(chan error)
		go func() { profiled <- c.save(ctx, fmt.Sprintf("profile?seconds=%.0f", idleFor.Seconds()/2)) }()
		err = errors.Join(f.heartbeats(ctx, rate, idleFor), <-profiled)
		after, _, err2 := usage(c.Pid())
		_, writes, _, events, err3 := b.audit.requests(c.mark)
		leastAfter, _, err4 := usage(least.Process.Pid)
		if err := errors.Join(err, err2, err3, err4); err != nil {
			return err
		}
		r.Values[metricCore] = 100 * (after - before) / idleFor.Seconds()
		r.Values[metricCoreFloor] = 100 * (leastAfter - leastBefore) / idleFor.Seconds()
		r.Values[metricCoreRatio] = r.Values[metricCore] / r.Values[metricCoreFloor]
		r.Values[metricIdle] = float64(writes + events)
		var took []float64
		for range scrapes {
			page, t, err := c.scrape(ctx)
			if err != nil {
				return err
			}
			r.Values[metricLines] = float64(bytes.Count(page, []byte("\n")))
			took = append(took, float64(t.Microseconds())/1000)
		}
		r.Values[metricScrape] = spreadOf(took).Median
		r.Values[metricReady], r.Values[metricReadyFloor] = c.ready.Seconds(), least.synced
		r.Values[metricAnon], err = anonymous(c.Pid())
		return err
	}), least.end())
}

// heartbeats has kubelets renew their status, so many a second together.
func (f *fleet) heartbeats(ctx context.Context, rate float64, d time.Duration) error {
	end := time.Now().Add(d)
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	var fault firstFault
	for time.Now().Before(end) {
		select {
		case <-tick.C:
			name := f.names[rand.IntN(len(f.names))] //nolint:gosec // no secret
			go func() {
				if err := f.patchStatus(ctx, name, heartbeat()...); err != nil {
					fault.note(err)
				}
			}()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fault.get()
}
