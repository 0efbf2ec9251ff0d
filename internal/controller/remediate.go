package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// attribute finds out whose failure a failed attempt is, with a probe on a verified node if need be.
func (r *Reconciler) attribute(ctx context.Context, in decide.Input, plan decide.Plan, now time.Time) (decide.Plan, error) {
	group := workerpod.Group(in.Node.Pool, in.Profile.Profile)
	probes, err := r.probes(ctx, group)
	if err != nil {
		return plan, err
	}
	fleet, err := r.fleet(ctx)
	if err != nil {
		return plan, err
	}
	decided, probe := decide.Attribute(in, *plan.Pod, probes, fleet, now)
	decided.Delete, decided.Keep = plan.Delete, plan.Keep
	if probe == nil {
		return decided, nil
	}
	decided.Wait = probeRetry
	pod, err := r.Builder.Probe(probe.On, in.Profile, probe.Subject, group)
	if err != nil {
		return plan, err
	}
	if !r.probing.take(group, pod.Name, now) {
		return decided, nil // another node of the group has just asked for one
	}
	if again, err := r.probes(ctx, group); err != nil || len(again) > len(probes) {
		r.probing.seen(pod.Name)
		return decided, err // it came into the cache since it was looked for
	}
	if err := r.Client.Create(ctx, pod); err != nil {
		r.probing.seen(pod.Name)
		if apierrors.IsAlreadyExists(err) {
			return decided, nil
		}
		return plan, fmt.Errorf("create probe %s on node %s: %w", pod.Name, probe.On.Name, err)
	}
	log.FromContext(ctx).Info("control probe created", "pod", pod.Name, "on", probe.On.Name, "attempt", plan.Pod.Attempt)
	return decided, nil
}

// probeRetry is how soon a node looks again for a probe whose end it missed.
const probeRetry = 5 * time.Second

// remediate decides about the deletion of a node whose retries are exhausted, on fresh reads, and does it. One node at a
// time: the limits count what the one before did.
func (r *Reconciler) remediate(ctx context.Context, n *corev1.Node, in decide.Input, plan decide.Plan, now time.Time) (decided decide.Plan, err error) {
	select {
	case r.serial <- struct{}{}:
		defer func() { <-r.serial }()
	case <-ctx.Done():
		return plan, ctx.Err()
	}
	ev, err := r.evidence(ctx, n, now)
	if err != nil {
		return plan, err
	}
	verdict := decide.Remediate(in, ev, now)
	decided = verdict.Plan
	decided.Delete, decided.Keep, decided.Wait = plan.Delete, plan.Keep, plan.Wait
	if decided.Condition == nil {
		decided.Condition = plan.Condition
	}
	if verdict.Delete == "" || r.DryRun {
		if verdict.Delete != "" {
			log.FromContext(ctx).Info("dry run: nothing is deleted", "kind", verdict.Delete, "name", verdict.Name)
		}
		if len(decided.Events) > 0 {
			r.Counters.Remediation(string(kindOf(ev)), "held")
		}
		return decided, nil
	}
	if err := r.delete(ctx, n, in, verdict, now); err != nil {
		return plan, err
	}
	return verdict.Plan, nil
}

func kindOf(ev decide.Evidence) decide.Kind {
	if ev.Claim.Name != "" {
		return decide.KindNodeClaim
	}
	return decide.KindNode
}

// evidence reads what the guards need from the API server. Only the rest of the fleet comes from the cache.
func (r *Reconciler) evidence(ctx context.Context, n *corev1.Node, now time.Time) (decide.Evidence, error) {
	var ev decide.Evidence
	var err error
	if ev.Deletions, err = r.Ledger.Read(ctx, now); errors.Is(err, remediation.ErrLedger) {
		ev.LedgerProblem = err.Error()
	} else if err != nil {
		return ev, err
	}
	if ev.Fleet, err = r.fleet(ctx); err != nil {
		return ev, err
	}
	if ev.Pods, err = remediation.OrdinaryPods(ctx, r.Live, n.Name); err != nil {
		return ev, err
	}
	ev.Claim = remediation.FindClaim(ctx, r.Live, n)
	return ev, nil
}

// delete enters the deletion in the ledger, removes the node's worker pods, and deletes the NodeClaim or the Node on
// condition of its UID. Cut short anywhere, it is decided again; the ledger counts it once.
func (r *Reconciler) delete(ctx context.Context, n *corev1.Node, in decide.Input, v decide.Remediation, now time.Time) error {
	if err := r.Ledger.Append(ctx, now, n.Name, in.Node.UID, in.Node.Pool, v.Delete); err != nil {
		return fmt.Errorf("enter the deletion of %s %s in the ledger: %w", v.Delete, v.Name, err)
	}
	for _, p := range in.Pods {
		if err := r.remove(ctx, p); err != nil {
			return err
		}
	}
	err := remediation.Delete(ctx, r.Client, v.Delete, v.Name, v.UID)
	switch {
	case apierrors.IsNotFound(err):
		return nil // somebody else did
	case err != nil:
		r.Counters.Remediation(string(v.Delete), "error")
		return err
	}
	log.FromContext(ctx).Info("deleted", "kind", v.Delete, "name", v.Name, "uid", v.UID, "reason", in.Node.Record.LastReason, "check", in.Node.Record.LastCheck)
	r.Counters.Remediation(string(v.Delete), "deleted")
	r.tell(ctx, n, []decide.Event{v.Told})
	return nil
}
