// Package node verifies nodes: it gathers what is observed of one, lets decide say what is next, and does it.
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

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
)

// settledRounds is how many rounds of the resync a verified node sits out.
const settledRounds = 10

// wokenRetry is how soon a node that waits for a watch to show something looks again by itself.
const wokenRetry = 2 * time.Second

// Prerequisites evaluates what must hold before a node's first worker.
type Prerequisites interface {
	// Unmet lists what does not hold for the node.
	Unmet(n *corev1.Node, p config.Prerequisites) []decide.Wait
	// Evaluate lists the same and does not make the node wait.
	Evaluate(n *corev1.Node, p config.Prerequisites) []decide.Wait
	// Forget drops a node that is gone.
	Forget(name string)
}

// Deletions takes over a node whose deletion is to be considered. It never blocks.
type Deletions interface {
	Consider(name string)
}

// Rules are what NodeReadinessRules ask of nodes.
type Rules interface {
	// Plan is what they ask of the node now. done must be called when that is written or dropped. The error is
	// controller.ErrRulesUnknown or nil.
	Plan(n *corev1.Node) (plan decide.RulePlan, done func(), err error)
	// Wrote accounts for a plan that was carried out, Failed for one that the API server did not take.
	Wrote(n *corev1.Node, plan decide.RulePlan)
	Failed(n *corev1.Node, plan decide.RulePlan, err error)
	// NodeGone drops a node that is gone.
	NodeGone(name string)
}

// Reconciler verifies nodes. It keeps no verification state: all of it is on the nodes and their worker pods.
type Reconciler struct {
	View *controller.View
	// Nodes writes our marks; in a dry run it changes nothing.
	Nodes client.Client
	// Live reads from the API server.
	Live client.Reader
	// Versions knows which nodes of the cache need no read. What Nodes writes to nodes must be written through its Writer.
	Versions *controller.Versions
	// Pods are the effects on worker pods.
	Pods          controller.Pods
	Slots         *controller.Slots
	Fleet         *controller.Fleet
	Prerequisites Prerequisites
	// Rules are nil where rules.enabled is false.
	Rules     Rules
	Deletions Deletions
	// Workloads lists the ordinary pods on a node, from the API server.
	Workloads func(ctx context.Context, node string) (decide.Workloads, error)
	Counters  *metrics.Counters
	Events    controller.Emitter

	queue wakeable
}

// Reconcile brings one node a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (ctrl.Result, error) {
	n := &corev1.Node{}
	if err := r.View.Cache.Get(ctx, req.NamespacedName, n); apierrors.IsNotFound(err) {
		r.gone(req.Name)
		return ctrl.Result{}, nil
	} else if err != nil {
		return r.failed(err)
	}
	if r.Versions.Behind(n) {
		return ctrl.Result{RequeueAfter: wokenRetry}, nil
	}
	fresh := false
	for try := 0; ; try++ {
		wait, priority, err := r.step(ctx, n, fresh)
		switch {
		case err == nil:
			r.wakeWaiting()
			interval := time.Duration(r.View.Config.Reconciliation.IntervalSeconds) * time.Second
			if r.settled(n) {
				interval *= settledRounds
			}
			if wait <= 0 || wait > interval {
				wait = interval
			}
			// Without a priority the queue would keep the one that this reconcile had.
			return ctrl.Result{RequeueAfter: wait, Priority: &priority}, nil
		case errors.Is(err, errNothingToDo):
			return ctrl.Result{}, nil
		case errors.Is(err, controller.ErrRulesUnknown), errors.Is(err, controller.ErrVanished):
			return ctrl.Result{RequeueAfter: wokenRetry}, nil // a watch wakes it; this is in case it was missed
		case !apierrors.IsConflict(err) && !errors.Is(err, errDecideAgain), try >= controller.ConflictRetries:
			return r.failed(err)
		}
		n, fresh = &corev1.Node{}, true
		if err := r.Live.Get(ctx, req.NamespacedName, n); err != nil {
			return r.failed(err)
		}
	}
}

// settled reports whether the node carries the label of a verified one and no taint that is ours to remove: only watches can show that
// something is to be done about it, and what they might have missed is less urgent than on a node that is held.
func (r *Reconciler) settled(n *corev1.Node) bool {
	v := r.View.Config.Vocabulary()
	return n.Labels[v.Verified.Key] == v.Verified.Value && !marks.Ruled(n) && !slices.ContainsFunc(n.Spec.Taints, v.Gates)
}

var (
	// errNothingToDo ends the reconcile of a node that is none of our business.
	errNothingToDo = errors.New("nothing to do")
	// errDecideAgain asks for the same decision on a fresh read.
	errDecideAgain = errors.New("decide again")
)

// failed counts an error on its way to the queue, which tries again with backoff. A node that is gone although the cache still has it is
// forgotten once the watch shows that: until then what is known of it is what keeps the cache's from being believed.
func (r *Reconciler) failed(err error) (ctrl.Result, error) {
	if apierrors.IsNotFound(err) {
		return ctrl.Result{RequeueAfter: wokenRetry}, nil
	}
	r.Counters.ReconcileError()
	return ctrl.Result{}, err
}

// gone forgets a node that the cache does not have.
func (r *Reconciler) gone(name string) {
	r.Prerequisites.Forget(name)
	r.Slots.Forget(name)
	r.Fleet.Gone(name)
	r.Versions.Gone(name)
	r.View.Sights.NodeGone(name)
	if r.Rules != nil {
		r.Rules.NodeGone(name)
	}
	r.wakeWaiting()
}

// step decides and acts once. It returns when to look again, and how urgent that is.
func (r *Reconciler) step(ctx context.Context, n *corev1.Node, fresh bool) (wait time.Duration, priority int, err error) {
	d, err := r.decide(ctx, n, fresh)
	defer r.Slots.GiveBack(n.Name) // unless a pod was made of it
	defer d.ruled()
	if err != nil {
		return 0, 0, err
	}
	r.View.Sights.See(d.in, d.plan)
	if wait, err = r.act(ctx, d); err != nil {
		return 0, 0, err
	}
	if d.rules.Wait > 0 && (wait == 0 || d.rules.Wait < wait) {
		wait = d.rules.Wait
	}
	if d.plan.Step == decide.StepRecord {
		return wait, tidy, nil // what follows a record is the condition and the pod's end
	}
	return wait, urgency(d.in.Node), nil
}

// decision is a plan and what it was decided on.
type decision struct {
	node *corev1.Node
	in   decide.Input
	ev   decide.Evidence
	plan decide.Plan
	// rules is what NodeReadinessRules ask of the node; ruled ends that decision.
	rules decide.RulePlan
	ruled func()
}

// rule asks what the rules ask of the node as it was read last.
func (r *Reconciler) rule(d *decision, n *corev1.Node) (err error) {
	if r.Rules == nil {
		return nil
	}
	d.ruled()
	d.rules, d.ruled, err = r.Rules.Plan(n)
	return err
}

// decide asks what is next, and loads the evidence that it is asked for. Evidence of a deletion is not loaded here.
func (r *Reconciler) decide(ctx context.Context, n *corev1.Node, fresh bool) (decision, error) {
	d := decision{ruled: func() {}}
	var in decide.Input
	var err error
	if fresh {
		in, err = r.View.GatherFresh(ctx, r.Live, n)
	} else {
		in, err = r.View.Gather(ctx, n)
	}
	if err != nil {
		return d, err
	}
	if err := r.rule(&d, n); err != nil {
		return d, err
	}
	if !decide.Concerns(in) && len(in.Pods) == 0 && !d.rules.Concerns() {
		r.View.Sights.See(in, decide.Plan{})
		return d, errNothingToDo
	}
	ev := decide.Evidence{Fresh: fresh, Current: r.Versions.Current(n)}
	for {
		plan := decide.Next(in, ev, r.View.Sights.Now())
		switch plan.Need {
		case decide.NeedNothing:
			d.node, d.in, d.ev, d.plan = n, in, ev, plan
			return d, nil
		case decide.NeedWaits:
			waits := r.Prerequisites.Unmet(n, in.Profile.Prerequisites)
			ev.Waits = &waits
		case decide.NeedSlot:
			ok, err := r.Slots.Take(ctx, n.Name)
			if err != nil {
				return d, err
			}
			ev.Slot = &ok
		case decide.NeedProbes:
			probes, err := r.View.Probes(ctx, decide.Group(in))
			if err != nil {
				return d, err
			}
			ev.Probes = &probes
		case decide.NeedFleet:
			fleet, err := r.Fleet.Members(ctx)
			if err != nil {
				return d, err
			}
			ev.Fleet = &fleet
		case decide.NeedOccupants:
			occupants := r.occupants(ctx, n.Name)
			ev.Workloads = &occupants
		case decide.NeedElsewhere:
			waits, err := r.elsewhere(ctx, plan.Probe.On.Name, in.Profile.Prerequisites)
			if err != nil {
				return d, err
			}
			ev.Elsewhere = &waits
		case decide.NeedFresh:
			now := &corev1.Node{}
			if err := r.Live.Get(ctx, client.ObjectKeyFromObject(n), now); err != nil {
				return d, err
			}
			if in, err = r.View.GatherFresh(ctx, r.Live, now); err != nil {
				return d, err
			}
			if err := r.rule(&d, now); err != nil {
				return d, err
			}
			n, ev = now, decide.Evidence{Fresh: true, Slot: ev.Slot}
		default:
			r.Deletions.Consider(n.Name)
			plan.Step = decide.StepNone
			d.node, d.in, d.ev, d.plan = n, in, ev, plan
			return d, nil
		}
	}
}

// occupants are the ordinary pods on a node. Where they cannot be listed the node counts as one that runs some: a taint that evicts
// nobody closes the gate as well, and at once.
func (r *Reconciler) occupants(ctx context.Context, node string) decide.Workloads {
	w, err := r.Workloads(ctx, node)
	if err != nil {
		log.FromContext(ctx).Error(err, "the node counts as one that runs ordinary pods")
		w.Problem = "its pods cannot be listed, so it may run ordinary ones"
	}
	return w
}

// elsewhere evaluates prerequisites on another node.
func (r *Reconciler) elsewhere(ctx context.Context, name string, p config.Prerequisites) ([]decide.Wait, error) {
	n := &corev1.Node{}
	err := r.View.Cache.Get(ctx, client.ObjectKey{Name: name}, n)
	if apierrors.IsNotFound(err) {
		return nil, errDecideAgain // the fleet still has it
	}
	if err != nil {
		return nil, err
	}
	return r.Prerequisites.Evaluate(n, p), nil
}

// wakeWaiting lets nodes that wait for a slot look again while there is one.
func (r *Reconciler) wakeWaiting() {
	for _, name := range r.Slots.Next() {
		r.queue.wake(name, 0)
	}
}
