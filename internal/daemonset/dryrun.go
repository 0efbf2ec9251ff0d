package daemonset

import (
	"context"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

// DryRun runs the node's checks once and logs what would be written, but writes nothing. It returns the report. Without
// a cluster or such a node, it runs the checks of a node that no profile selects.
func (p *Process) DryRun(ctx context.Context) (result.Report, error) {
	if err := p.prepare(); err != nil {
		return result.Report{}, err
	}
	n := &corev1.Node{}
	known := p.Connect != nil
	if known {
		found, err := p.read(ctx)
		if known = err == nil; known {
			n = found
		} else {
			p.Log.Warn("cannot read the node; running the checks for nodes that no profile selects", zap.Error(err))
		}
	}
	in := p.observe(n)
	if known {
		for _, w := range p.unmet(ctx, n, in.Profile.Prerequisites, &schedule{}) {
			p.Log.Info("dry run: the node would wait for "+w.Message, zap.String("kind", w.Kind), zap.String("name", w.Name))
		}
	}
	p.self.Attempt = in.NextAttempt()
	c := p.workerConfig(in.Profile)
	p.Metrics.attemptStarted(c.Expand())
	report := p.Verify(ctx, c)
	p.Metrics.attemptEnded(report, time.Now())
	if ctx.Err() != nil {
		return report, nil //nolint:nilerr // somebody ended the run
	}
	p.self.Began, p.self.Attempt.Result = time.Now(), resultOf(report)
	p.Log.Info("dry run: the checks ended", zap.String("outcome", string(report.Outcome)))
	if known {
		plan, err := p.decide(ctx, in, n, &schedule{})
		if err != nil {
			return report, err
		}
		p.logPlan(in, plan)
	}
	return report, nil
}

// logPlan logs what a plan would do.
func (p *Process) logPlan(in decide.Input, plan decide.Plan) {
	switch {
	case plan.Step != decide.StepRecord:
		p.Log.Info("dry run: nothing would be written", zap.Bool("selected", in.Selected),
			zap.Bool("gated", in.Node.Gated), zap.Bool("labelled", in.Node.Labelled))
		return
	case plan.Change.Gate == marks.GateOpen:
		p.Log.Info("dry run: the gating taints would be removed")
	case plan.Change.Gate == marks.GateClose:
		p.Log.Info("dry run: the gating taints would be added")
	}
	if l := plan.Change.Label; l != nil && *l != in.Node.Labelled {
		p.Log.Info("dry run: the verified label would be changed", zap.Bool("verified", *l))
	}
	p.Log.Info("dry run: the record would be", zap.String("record", plan.Change.Record.Encode()))
}
