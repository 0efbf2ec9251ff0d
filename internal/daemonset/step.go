package daemonset

import (
	"context"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// pass decides and acts once.
func (p *Process) pass(ctx context.Context) (next, error) {
	select {
	case r := <-p.ended:
		p.finish(r)
	default:
	}
	n, err := p.read(ctx)
	if err != nil {
		return next{}, err
	}
	in := p.observe(n)
	look := next{wait: time.Duration(p.Config.Reconciliation.IntervalSeconds) * time.Second, watches: []string{watchOf(nodes, field("metadata.name", p.Node), n.ResourceVersion)}}
	plan, err := p.decide(ctx, in, n, &look)
	if err != nil {
		return next{}, err
	}
	switch plan.Step {
	case decide.StepStart:
		p.begin(ctx, in)
		p.seen = n
		return next{}, errAgain // what the node should say meanwhile is decided next
	case decide.StepRecord:
		return next{}, p.record(ctx, n, in, plan)
	}
	look.sooner(plan.RequeueAfter)
	return look, p.say(ctx, in, plan, &look)
}

// observe is what decisions need to know of the node.
func (p *Process) observe(n *corev1.Node) decide.Input {
	now := time.Now()
	if uid := string(n.UID); uid != p.uid { // another node has the name, of which nothing was seen
		p.abandon()
		p.uid, p.self, p.needed, p.wanted = uid, decide.LocalWorker{}, time.Time{}, decide.PendingCondition{}
	}
	in := decide.Input{Config: p.Config, Profile: p.Config.For(n.Labels), Selected: p.Config.Selects(n.Labels),
		Node: marks.Observe(n, p.Config.Vocabulary()), LocalWorker: &p.self}
	in.Checks = p.builder.Checks(in.Profile.Profile)
	if !in.Node.Gated {
		p.self.Attempt.Basis.Gated = false // a pass of the attempt under way does not open a gate that is closed from now on
	}
	switch {
	case !decide.Eligible(in) || !decide.NeedsVerification(in, now):
		p.needed = time.Time{}
	case p.needed.IsZero():
		p.needed = now
	}
	in.NeedsVerificationSince = p.needed
	return in
}

// decide asks what is next, and gathers the evidence that it is asked for. Of what was read for that, look is told.
// What a deletion needs is not asked for: config.ParseDaemonSet refuses it.
func (p *Process) decide(ctx context.Context, in decide.Input, n *corev1.Node, look *next) (decide.Plan, error) {
	ev := decide.Evidence{Fresh: true, Slot: new(true)} // nothing is cached here, and nobody counts workers
	return decide.Resolve(&in, &ev, time.Now, decide.Loaders{
		decide.NeedPrerequisites: decide.Loader(&ev.Unmet, func() ([]decide.Unmet, error) {
			return p.waits(ctx, n, in.Profile.Prerequisites, look), nil
		}),
		decide.NeedOccupants: decide.Loader(&ev.Workloads, func() (decide.Workloads, error) {
			problem := "in DaemonSet mode the node's pods are not listed, so it may run ordinary ones"
			return decide.Workloads{Problem: problem}, nil
		}),
	})
}

// record writes a change of our marks, the one write that decides. A pass is said in the condition before: once the node has its
// label nobody comes to do so, while one whose process ends between the two writes is verified again by the next.
func (p *Process) record(ctx context.Context, n *corev1.Node, in decide.Input, plan decide.Plan) error {
	if next := plan.NextCondition(in); next != nil && !next.Same(in.Node.Condition) {
		return p.patch(ctx, status, next.Patch(in.Node.UID, in.Node.Condition))
	}
	if in.Node.RecordProblem != "" {
		p.Log.Info("the record is replaced", zap.String("fault", in.Node.RecordProblem))
	}
	if err := p.patch(ctx, object, plan.Change.Patch(n, p.Config.Vocabulary())); err != nil && p.seen == nil {
		return err // nothing was written
	}
	if plan.ReleasesLabelled() {
		p.self.Released = true
		p.Log.Warn("somebody gave the node the verified label: its taints are removed although it did not pass")
	}
	if done := plan.Recorded; done != nil {
		p.self.Released = done.Result.Outcome == attempt.Passed
		r := plan.Change.Record
		p.Log.Info("verification "+string(r.LastOutcome), zap.Int32("attempt", r.Sequence), zap.String("check", r.LastCheck),
			zap.String("reason", r.LastReason), zap.String("message", r.LastMessage), zap.Float64("duration", done.Result.Duration.Seconds()))
	}
	return errAgain
}

// say writes the condition if it is time to.
func (p *Process) say(ctx context.Context, in decide.Input, plan decide.Plan, look *next) error {
	if plan.ClearCondition {
		return p.patch(ctx, status, marks.RemoveCondition(in.Node.UID))
	}
	if plan.Condition == nil {
		p.wanted = decide.PendingCondition{}
		return nil
	}
	write, wanted, wait := decide.ConditionDue(*plan.Condition, in.Node.Condition, p.wanted, time.Now())
	p.wanted = wanted
	look.sooner(wait)
	if !write {
		return nil
	}
	p.Log.Info("the node says", zap.String("status", string(plan.Condition.Status)), zap.String("reason", plan.Condition.Reason), zap.String("message", plan.Condition.Message))
	return p.patch(ctx, status, plan.Condition.Patch(in.Node.UID, in.Node.Condition))
}
