// Package node verifies nodes. A reconcile observes a node, has package decide decide the next step, and carries it
// out.
package node

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// settledRounds is how many intervals pass between two reconciles of a node that only the sweep enqueues: a verified
// one, and one whose remediation is held.
const settledRounds = 10

// missedEventRetry is when a node that waits for an event of a watch is reconciled without it.
const missedEventRetry = 2 * time.Second

// Prerequisites evaluates what must hold before a node's first worker.
type Prerequisites interface {
	// Unmet lists what does not hold for the node.
	Unmet(n *corev1.Node, p config.Prerequisites) []decide.Unmet
	// Forget drops a node that is gone, or that waits for nothing and whose record names its boot.
	Forget(name string)
}

// Remediations queues a node whose remediation must be considered. It never blocks.
type Remediations interface {
	Consider(name string)
}

// Rules are the requirements of NodeReadinessRules for nodes.
type Rules interface {
	// Plan is what they require of the node now. Call done when the plan is written or dropped.
	Plan(n *corev1.Node) (plan rule.Plan, done func())
	// Confirm reports whether the rules whose taints the plan adds exist. It is called before the plan is written, and
	// after that.
	Confirm(ctx context.Context, live client.Reader, plan rule.Plan, written bool) (exist bool, err error)
	// RecordWrite records a plan that was written, RecordFailure one that the API server refused.
	RecordWrite(n *corev1.Node, plan rule.Plan)
	RecordFailure(n *corev1.Node, plan rule.Plan, err error)
	// Concern reports whether a rule that is listed concerns the node. Their first list enqueues the nodes that
	// they concern.
	Concern(n *corev1.Node) bool
	// ForgetNode drops a node that is gone.
	ForgetNode(name string)
}

// Reconciler verifies nodes. It keeps no verification state: all of it is on the nodes and their worker pods.
type Reconciler struct {
	View *controller.View
	// Nodes writes our marks; in a dry run it changes nothing.
	Nodes client.Client
	// Live reads from the API server.
	Live client.Reader
	// Pods are the effects on worker pods.
	Pods          controller.Pods
	Slots         *controller.Slots
	Fleet         *controller.Fleet
	Prerequisites Prerequisites
	// Rules are nil where rules.enabled is false.
	Rules        Rules
	Remediations Remediations
	// Workloads lists the ordinary pods on a node, from the API server.
	Workloads func(ctx context.Context, node string) (decide.Workloads, error)
	// Warnings reads the last Warning event of a pod that does not start.
	Warnings controller.Warnings
	Counters *metrics.Counters
	Events   controller.Emitter
	// Cached lists the names of the nodes in the cache: all, and those with a taint that matches.
	Cached interface {
		Names() []string
		Tainted(match func(corev1.Taint) bool) []string
	}

	queue enqueuer
}

// Reconcile brings one node a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (ctrl.Result, error) {
	n, left := &corev1.Node{}, r.deleteAltered(ctx, req.Name) // what it cannot delete holds up nothing else
	if err := r.View.Cache.Get(ctx, req.NamespacedName, n); apierrors.IsNotFound(err) {
		r.gone(ctx, req.Name)
		if left != nil {
			return r.failed(left)
		}
		return ctrl.Result{}, nil
	} else if err != nil {
		return r.failed(err)
	}
	ev, refused := decide.Evidence{}, controller.RetryLater{}
	for try := 0; ; try++ {
		wait, priority, err := r.step(ctx, n, ev)
		switch {
		case err == nil:
			r.enqueueWaiting(ctx)
			if left != nil {
				return r.failed(left)
			}
			// Without a priority the queue would keep the one that this reconcile had.
			return ctrl.Result{RequeueAfter: wait, Priority: &priority}, nil
		case errors.Is(err, controller.ErrNotShown):
			return ctrl.Result{RequeueAfter: missedEventRetry}, nil // a watch enqueues it; this is in case it was missed
		case errors.As(err, &refused):
			return ctrl.Result{RequeueAfter: refused.After}, nil
		case !apierrors.IsConflict(err) && !errors.Is(err, errDecideAgain), try >= controller.ConflictRetries:
			r.reportRefusal(ctx, n, err)
			return r.failed(err)
		}
		ev = decide.Evidence{Fresh: true}
	}
}

// settled reports whether the node carries the verified label and no taint that the controller must remove. Only a
// watch event can show that such a node needs something. That is less urgent than a node that is held.
func (r *Reconciler) settled(n *corev1.Node) bool {
	v := r.View.Config.Vocabulary()
	return n.Labels[v.Verified.Key] == v.Verified.Value && !marks.HasRuleTaint(n, v) &&
		!slices.ContainsFunc(n.Spec.Taints, v.Gates)
}

// errDecideAgain asks for the same decision on a fresh read.
var errDecideAgain = errors.New("decide again")

// failed counts an error and returns it to the queue, which retries with backoff. If the node is gone but still in the
// cache, an event of the watch follows. It drops the state of the node.
func (r *Reconciler) failed(err error) (ctrl.Result, error) {
	if apierr.Of(err, apierr.Patch) == apierr.Gone {
		return ctrl.Result{RequeueAfter: missedEventRetry}, nil
	}
	r.Counters.ReconcileError()
	return ctrl.Result{}, err
}

// gone drops all state of a node that the cache does not have.
func (r *Reconciler) gone(ctx context.Context, name string) {
	r.Prerequisites.Forget(name)
	r.Slots.Forget(name)
	r.Fleet.Gone(name)
	r.View.Tracker.NodeGone(name)
	if r.Rules != nil {
		r.Rules.ForgetNode(name)
	}
	r.enqueueWaiting(ctx)
}

// nextLook is when to reconcile a node again without an event, or 0 if only the sweep does. wait is when the decision
// asks for that, or 0.
func (r *Reconciler) nextLook(d decision, wait time.Duration) time.Duration {
	interval := r.View.Config.Reconciliation.Interval()
	// The remediation queue looks at a held node. The end of a pod may be refused, and is then tried again.
	held := d.handedOver && d.in.Node.Record.Held != "" && !d.plan.EndsPods()
	verifies := decide.NeedsVerification(d.in, r.View.Tracker.Now()) // a node in service that has failed keeps its label
	swept := d.quiet || held || r.settled(d.node) && !verifies
	if swept {
		interval *= settledRounds
	}
	switch {
	case wait > 0 && wait <= interval:
		return wait
	case swept:
		return 0
	}
	return interval
}

// step decides and acts once. ev holds how the node was read. It returns when to reconcile the node again, and with
// which priority.
func (r *Reconciler) step(ctx context.Context, n *corev1.Node, ev decide.Evidence) (
	wait time.Duration, priority int, err error) {
	d, err := r.decide(ctx, n, ev)
	defer r.Slots.GiveBack(n.Name) // unless a pod was made of it
	defer d.ruled()
	if err != nil {
		return 0, 0, err
	}
	r.View.Tracker.Decided(d.in, d.plan)
	d.log(ctx)
	if d.ev.Unmet == nil && d.in.Node.Record.BootID == d.in.Node.BootID {
		r.Prerequisites.Forget(n.Name)
	}
	if d.rules.Unavailable != "" {
		wait, err = r.setCondition(ctx, d)
		return r.nextLook(d, wait), urgency(d.in.Node), err
	}
	if wait, err = r.act(ctx, d); err != nil {
		return 0, 0, err
	}
	if err := r.confirmRules(ctx, d, true); err != nil {
		return 0, 0, err
	}
	if d.rules.Wait > 0 && (wait == 0 || d.rules.Wait < wait) {
		wait = d.rules.Wait
	}
	wait = r.nextLook(d, wait)
	if d.plan.Step == decide.StepRecord {
		return wait, tidy, nil // what follows a record is the condition and the pod's end
	}
	return wait, urgency(d.in.Node), nil
}

// decision is a plan, and the state on which it was decided.
type decision struct {
	node *corev1.Node
	in   decide.Input
	ev   decide.Evidence
	plan decide.Plan
	// rules is what NodeReadinessRules ask of the node; ruled ends that decision.
	rules rule.Plan
	ruled func()
	// quiet: there is nothing to do for the node.
	quiet bool
	// handedOver: the remediation queue continues the decision.
	handedOver bool
}

// log logs the decision, and what it was made on, at level debug.
func (d decision) log(ctx context.Context) {
	debug := log.FromContext(ctx).V(1)
	if !debug.Enabled() {
		return
	}
	reason := ""
	if d.plan.Condition != nil {
		reason = d.plan.Condition.Reason
	}
	debug.Info("decided", "step", d.plan.Step, "condition", reason, "wait", d.plan.RequeueAfter,
		"resourceVersion", d.node.ResourceVersion, "fresh", d.ev.Fresh, "sequence", d.in.Node.Record.Sequence,
		"workers", len(d.in.Pods), "delete", len(d.plan.Delete), "rules", d.rules.Concerns())
}

// decide returns the decision about the next step.
func (r *Reconciler) decide(ctx context.Context, n *corev1.Node, ev decide.Evidence) (decision, error) {
	d := decision{ev: ev, ruled: func() {}}
	err := r.gather(ctx, &d, n, ev.Fresh)
	stops := errors.Is(err, decide.ErrStop)
	if err != nil && !stops {
		return d, err
	}
	if len(d.in.Node.RemediationConditions) > 0 {
		r.Remediations.Consider(n.Name) // whether the node should have them, also while its rules cannot be served
	}
	if stops {
		return d, nil
	}
	if look, quiet := decide.Quiet(d.in, r.View.Tracker.Now()); quiet && len(d.in.Pods) == 0 && !d.rules.Concerns() {
		d.plan.RequeueAfter, d.quiet = look, true
		return d, nil
	}
	plan, err := decide.Resolve(&d.in, &d.ev, r.View.Tracker.Now, r.loaders(ctx, &d))
	if d.rules.Unavailable == "" { // else that is what was decided
		d.plan = plan
	}
	return d, err
}

// gather observes the node, and evaluates the rules on the node as it was read last. If the node waits for rules that
// cannot be served, the decision is to wait, and the error is decide.ErrStop.
func (r *Reconciler) gather(ctx context.Context, d *decision, n *corev1.Node, fresh bool) (err error) {
	if fresh {
		n, d.in, err = r.View.Fresh(ctx, r.Live, n)
	} else {
		d.in, err = r.View.Gather(ctx, n)
	}
	if err != nil {
		return err
	}
	d.node = n
	if r.Rules == nil {
		return nil
	}
	d.ruled()
	d.rules, d.ruled = r.Rules.Plan(n)
	if d.rules.Unavailable == "" {
		return nil
	}
	tainted := marks.HasRuleTaint(n, r.View.Config.Vocabulary())
	d.plan = decide.RulesUnavailable(d.in, tainted, d.rules.Unavailable, r.View.Tracker.Now())
	return decide.ErrStop
}

// loaders load the evidence of d. A decision that needs the evidence of a remediation is handed over to the remediation
// queue.
func (r *Reconciler) loaders(ctx context.Context, d *decision) decide.Loaders {
	handOver := func(decide.Plan) error {
		r.Remediations.Consider(d.node.Name)
		d.handedOver = true
		return decide.ErrStop
	}
	return decide.Loaders{
		decide.NeedPrerequisites: decide.Loader(&d.ev.Unmet, func() ([]decide.Unmet, error) {
			return r.Prerequisites.Unmet(d.node, d.in.Profile.Prerequisites), nil
		}),
		decide.NeedSlot: decide.Loader(&d.ev.Slot, func() (bool, error) {
			taken, err := r.Slots.Take(ctx, d.node.Name)
			if err == nil && !taken {
				d.ev.SlotHolders = new(r.Slots.PastEnd())
			}
			return taken, err
		}),
		decide.NeedProbes: decide.Loader(&d.ev.Probes, func() ([]workerpod.Observation, error) {
			return r.View.Probes(ctx, decide.ProbeGroups(d.in)...)
		}),
		decide.NeedFleet: decide.Loader(&d.ev.Fleet, func() ([]decide.NodeSummary, error) { return r.Fleet.Summaries(ctx) }),
		decide.NeedFresh: func(decide.Plan) error { return r.gather(ctx, d, d.node, true) },
		decide.NeedWarning: decide.Loader(&d.ev.Warning, func() (string, error) {
			return r.Warnings.Last(ctx, d.in, d.ev.Fresh), nil
		}),
		decide.NeedOccupants: decide.Loader(&d.ev.Workloads, func() (decide.Workloads, error) {
			return r.occupants(ctx, d.node.Name), nil
		}),
		decide.NeedLedger:    handOver,
		decide.NeedCounts:    handOver,
		decide.NeedWorkloads: handOver,
		decide.NeedOwner:     handOver,
	}
}

// occupants are the ordinary pods on a node. If they cannot be listed, the node counts as one that runs some. A taint
// that evicts no pod closes the gate as well, and does so at once.
func (r *Reconciler) occupants(ctx context.Context, node string) decide.Workloads {
	w, err := r.Workloads(ctx, node)
	if err != nil {
		log.FromContext(ctx).Error(err, "the node counts as one that runs ordinary pods")
		w.Problem = "its pods cannot be listed, so it may run ordinary pods"
	}
	return w
}

// enqueueWaiting enqueues nodes that wait for a slot, as long as there are free slots.
func (r *Reconciler) enqueueWaiting(ctx context.Context) {
	for _, name := range r.Slots.Next(ctx) {
		r.queue.enqueue(name, 0)
	}
}
