//go:build bench

package main

import (
	"context"
	"errors"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// failover is a case of two controllers of which the leader goes: how long until the other one acts.
func failover() benchCase {
	goes := func(sig syscall.Signal) func(context.Context, *bed, *result) error {
		return func(ctx context.Context, b *bed, r *result) error { return succeeds(ctx, b, r, sig) }
	}
	return benchCase{name: "failover", what: "a node that comes while the leader is stopped, or killed, until it is released", nodes: 1,
		sides: []side{{"stopped", goes(syscall.SIGTERM)}, {"killed", goes(syscall.SIGKILL)}}}
}

func succeeds(ctx context.Context, b *bed, r *result, sig syscall.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first, err := b.start(ctx, "first", nil, "")
	if err != nil {
		return err
	}
	defer first.Kill()
	if err := first.lead(ctx); err != nil {
		return err
	}
	second, err := b.start(ctx, "second", nil, "")
	if err != nil {
		return err
	}
	defer second.Kill()
	f := newFleet(b.client, b.prefix(), r.Nodes, gatingTaint, verifiedLabel)
	kubelets := newKubelets(ctx, b.client, 0, pass)
	if err := watch(ctx, b.client, f.see, kubelets.see); err != nil {
		return err
	}
	if err := pause(ctx, 5*time.Second); err != nil { // several renewals
		return err
	}
	at := time.Now()
	first.Signal(sig)
	<-first.Done() // what comes now only the second can see to
	err = f.register(ctx, 0, func(_ context.Context, n *corev1.Node) error {
		f.arrive(n.Name, at)
		return nil
	})
	if err == nil {
		err = f.await(ctx)
	}
	if err != nil {
		return err
	}
	waits, _ := f.waits()
	r.Values[metricTakeover] = waits[len(waits)-1]
	return errors.Join(f.remove(ctx), second.end())
}
