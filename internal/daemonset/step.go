package daemonset

import (
	"context"
	"net/url"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// pass decides and acts once.
func (p *Process) pass(ctx context.Context) (schedule, error) {
	select {
	case r := <-p.ended:
		p.finishAttempt(r)
	default:
	}
	n, err := p.read(ctx)
	if err != nil {
		return schedule{}, err
	}
	in := p.observe(n)
	own := url.Values{"fieldSelector": {"metadata.name=" + p.Node}}
	next := schedule{wait: p.Config.Reconciliation.Interval(), watches: []string{watchOf(nodes, own, n.ResourceVersion)}}
	plan, err := p.decide(ctx, in, n, &next)
	if err != nil {
		return schedule{}, err
	}
	switch plan.Step {
	case decide.StepStart:
		p.startAttempt(ctx, in)
		p.latest = n
		return schedule{}, errAgain // the next pass sets the condition
	case decide.StepRecord:
		return schedule{}, p.record(ctx, n, in, plan)
	}
	next.within(plan.RequeueAfter)
	err = p.updateCondition(ctx, in, plan, &next)
	return next, err
}

// observe is the input of decisions about the node.
func (p *Process) observe(n *corev1.Node) decide.Input {
	now := time.Now()
	if uid := string(n.UID); uid != p.uid { // another node has the name
		p.cancelAttempt()
		p.uid, p.self, p.needed, p.wanted = uid, decide.LocalWorker{}, time.Time{}, decide.PendingCondition{}
	}
	in := decide.Input{Config: p.Config, Profile: p.Config.For(n.Labels), Selected: p.Config.Selects(n.Labels),
		Node: marks.Observe(n, p.Config.Vocabulary()), LocalWorker: &p.self}
	in.Checks = p.builder.Checks(in.Profile.Profile)
	if !in.Closed() {
		p.self.Attempt.Basis.Gated = false // if the running attempt passes, it opens no gate that is closed later
	}
	switch {
	case !decide.Eligible(in) || !decide.NeedsVerification(in, now):
		p.cancelAttempt()
		p.self.Attempt, p.needed = attempt.Attempt{}, time.Time{}
	case p.needed.IsZero():
		p.needed = now
	}
	in.NeedsVerificationSince = p.needed
	return in
}

// decide decides the next step. It reads the evidence that the decision needs, and adds the watches of it to the
// schedule. There is none for a deletion: config.ParseDaemonSet refuses to enable it.
func (p *Process) decide(ctx context.Context, in decide.Input, n *corev1.Node, s *schedule) (decide.Plan, error) {
	ev := decide.Evidence{Fresh: true, Slot: new(true)} // there are no caches and no worker pods
	return decide.Resolve(&in, &ev, time.Now, decide.Loaders{
		decide.NeedPrerequisites: decide.Loader(&ev.Unmet, func() ([]decide.Unmet, error) {
			return p.unmet(ctx, n, in.Profile.Prerequisites, s), nil
		}),
		decide.NeedOccupants: decide.Loader(&ev.Workloads, func() (decide.Workloads, error) {
			problem := "DaemonSet mode does not list the node's pods, so the node may run ordinary pods"
			return decide.Workloads{Problem: problem}, nil
		}),
	})
}

// record writes a change of our marks. It sets the condition first: the DaemonSet stops the process once the node has
// its label. A process that ends between the two writes verifies the node again when it restarts.
func (p *Process) record(ctx context.Context, n *corev1.Node, in decide.Input, plan decide.Plan) error {
	if next := plan.NextCondition(in); next != nil && !next.Same(in.Node.Condition) {
		return p.patch(ctx, status, next.Patch(in.Node.UID, in.Node.Condition))
	}
	if in.Node.RecordProblem != "" {
		p.Log.Info("the record is replaced", zap.String("problem", in.Node.RecordProblem))
	}
	if err := p.patch(ctx, object, plan.Change.Patch(n, p.Config.Vocabulary())); err != nil && p.latest == nil {
		return err // nothing was written
	}
	if plan.ReleasesLabelled() {
		p.self.Released = true
		p.Log.Warn("somebody set the verified label: removing the node's taints although it did not pass")
	}
	if done := plan.Recorded; done != nil {
		p.self.Released = done.Result.Outcome == attempt.Passed
		r := plan.Change.Record
		p.Log.Info("verification "+string(r.LastOutcome), zap.Int32("attempt", r.Sequence),
			zap.String("check", r.LastCheck), zap.String("reason", r.LastReason), zap.String("message", r.LastMessage),
			zap.Float64("duration", done.Result.Duration.Seconds()))
	}
	return errAgain
}

// updateCondition writes the condition if it is due.
func (p *Process) updateCondition(ctx context.Context, in decide.Input, plan decide.Plan, s *schedule) error {
	if plan.ClearCondition {
		return p.patch(ctx, status, marks.RemoveCondition(in.Node.UID))
	}
	if plan.Condition == nil {
		p.wanted = decide.PendingCondition{}
		return nil
	}
	write, wanted, wait := decide.ConditionDue(*plan.Condition, in.Node.Condition, p.wanted, time.Now())
	p.wanted = wanted
	s.within(wait)
	if !write {
		return nil
	}
	p.Log.Info("condition changes", zap.String("status", string(plan.Condition.Status)),
		zap.String("reason", plan.Condition.Reason), zap.String("message", plan.Condition.Message))
	return p.patch(ctx, status, plan.Condition.Patch(in.Node.UID, in.Node.Condition))
}
