//go:build bench

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

const (
	manyRules = 20
	// changesFor is how long a condition changes on one node after the other, so many times a second as kubelets of 5000
	// nodes send their status.
	changesFor = 20 * time.Second
	changes    = 17
)

// severalRules is a case in which a condition that one rule is about changes, beside no other rule and beside
// nineteen that select the same nodes. Nothing else runs that writes to nodes.
func severalRules(name, what string, nodes int) benchCase {
	of := func(title string, count int) side {
		return side{title, func(ctx context.Context, b *bed, r *result) error {
			if err := b.keepRules(ctx, count); err != nil {
				return err
			}
			return b.changing(ctx, r)
		}}
	}
	return benchCase{name: name, what: what, nodes: nodes, prepare: heldByNone, sides: []side{of("1 rule", 1), of(fmt.Sprintf("%d rules", manyRules), manyRules)},
		plane: cluster.Options{WithoutControllerManager: true, WithoutScheduler: true}}
}

// idleRules is a case without work, with rules that have released all nodes and without rules.
func idleRules(name, what string, nodes int) benchCase {
	at := func(title string, served bool) side {
		return side{title, func(ctx context.Context, b *bed, r *result) error {
			return idles(ctx, b, r, 17, map[string]any{"rules": map[string]any{"enabled": served}})
		}}
	}
	return benchCase{name: name, what: what, nodes: nodes, sides: []side{at("without rules", false), at(fmt.Sprintf("%d rules", manyRules), true)},
		plane: cluster.Options{WithoutControllerManager: true, WithoutScheduler: true},
		prepare: func(ctx context.Context, b *bed, nodes int) error {
			return errors.Join(heldByNone(ctx, b, nodes), b.keepRules(ctx, manyRules))
		}}
}

// conditionOf is the condition of the rule of a number; the others keep theirs.
func conditionOf(rule int) corev1.NodeConditionType {
	return corev1.NodeConditionType(fmt.Sprintf("%s-%d", ruleCondition, rule))
}

// heldByNone installs the definition of rules, and registers nodes that are verified and on which the conditions of
// all rules hold.
func heldByNone(ctx context.Context, b *bed, nodes int) error {
	if err := define(ctx, b); err != nil {
		return err
	}
	f := newFleet(b.client, "idle", nodes, gatingTaint, "")
	if err := verified(ctx, f, nodes); err != nil {
		return err
	}
	var conditions []corev1.NodeCondition
	for i := range manyRules {
		conditions = append(conditions, reported(i, corev1.ConditionTrue))
	}
	return f.each(ctx, 0, func(ctx context.Context, name string) error { return f.patchStatus(ctx, name, conditions...) })
}

func reported(rule int, status corev1.ConditionStatus) corev1.NodeCondition {
	now := metav1.Now()
	return corev1.NodeCondition{Type: conditionOf(rule), Status: status, Reason: "Bench", LastHeartbeatTime: now, LastTransitionTime: now}
}

// keepRules makes continuous rules, so many, and deletes those beyond.
func (b *bed) keepRules(ctx context.Context, count int) error {
	var rules bytes.Buffer
	for i := range count {
		fmt.Fprintf(&rules, `{"apiVersion": "readiness.node.x-k8s.io/v1alpha1", "kind": "NodeReadinessRule", "metadata": {"name": "bench-%[1]d"}, "spec": {
  "nodeSelector": {"matchLabels": {"bench": "true"}}, "enforcementMode": "continuous", "conditions": [{"type": %[2]q, "requiredStatus": "True"}],
  "taint": {"key": "%[3]s-%[1]d", "effect": "NoSchedule"}}}
---
`, i, conditionOf(i), ruleTaint)
	}
	if err := install.Apply(ctx, b.cluster, rules.Bytes()); err != nil {
		return err
	}
	for i := count; i < manyRules; i++ {
		_ = b.dropRule(ctx, fmt.Sprintf("bench-%d", i)) // there may be none
	}
	return nil
}

// dropRule deletes a rule that holds no node, also where nobody runs who would take its finalizer off.
func (b *bed) dropRule(ctx context.Context, name string) error {
	rest, path := b.client.Discovery().RESTClient(), "/apis/readiness.node.x-k8s.io/v1alpha1/nodereadinessrules/"+name
	err := rest.Delete().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx).Error()
	if err != nil {
		return err
	}
	err = rest.Patch(types.MergePatchType).AbsPath(path).SetHeader("Accept", "application/json").Body([]byte(`{"metadata":{"finalizers":null}}`)).Do(ctx).Error()
	return client.IgnoreNotFound(err)
}

// changing is a turn in which the condition of the first rule is lost and found again, on one node after the other.
func (b *bed) changing(ctx context.Context, r *result) error {
	f := newFleet(b.client, "idle", r.Nodes, gatingTaint, "")
	return b.during(ctx, r, nil, "", func(c *controller) error {
		if err := c.calms(ctx); err != nil {
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
		go func() { profiled <- c.save(ctx, fmt.Sprintf("profile?seconds=%.0f", changesFor.Seconds())) }()
		tick := time.NewTicker(time.Second / changes)
		defer tick.Stop()
		made := 0
		for end := time.Now().Add(changesFor); time.Now().Before(end); made++ {
			<-tick.C
			status := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue}[made%2]
			if err := f.patchStatus(ctx, f.names[made/2%len(f.names)], reported(0, status)); err != nil {
				return err
			}
		}
		if err := pause(ctx, settle); err != nil {
			return err
		}
		after, _, err := usage(c.Pid())
		_, writes, _, _, err2 := b.audit.requests(c.mark)
		r.Values[metricChanges], r.Values[metricCore] = after-before, 100*(after-before)/changesFor.Seconds()
		r.Values[metricChangeWrites] = float64(writes) / float64(made)
		return errors.Join(err, err2, <-profiled)
	})
}
