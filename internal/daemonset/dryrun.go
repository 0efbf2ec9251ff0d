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

// DryRun runs the node's checks once, says what would be written, and writes nothing. Without a cluster, or such a node, it runs
// those of a node that no profile selects. It returns the report.
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
			p.Log.Warn("the node cannot be read; the checks of a node that no profile selects are run", zap.Error(err))
		}
	}
	in := p.observe(n)
	look := next{}
	if known {
		for _, w := range p.waits(ctx, n, in.Profile.Prerequisites, &look) {
			p.Log.Info("dry run: the node would wait for "+w.Message, zap.String("kind", w.Kind), zap.String("name", w.Name))
		}
	}
	p.self.Attempt = in.NextAttempt()
	told := p.told(in.Profile)
	p.Metrics.begin(told.Expand())
	report := p.Verify(ctx, told)
	p.Metrics.finished(report, time.Now())
	select {
	case <-ctx.Done(): // what it found counts all the same
		return report, nil
	default:
	}
	p.self.Began, p.self.Attempt.Result = time.Now(), resultOf(report)
	p.Log.Info("dry run: the checks ended", zap.String("outcome", string(report.Outcome)))
	if known {
		plan, err := p.decide(ctx, in, n, &look)
		if err != nil {
			return report, err
		}
		p.foretell(in, plan)
	}
	return report, nil
}

// foretell logs what a plan would have done.
func (p *Process) foretell(in decide.Input, plan decide.Plan) {
	switch {
	case plan.Step != decide.StepRecord:
		p.Log.Info("dry run: nothing would be written", zap.Bool("selected", in.Selected), zap.Bool("gated", in.Node.Gated), zap.Bool("labelled", in.Node.Labelled))
		return
	case plan.Change.Gate == marks.GateOpen:
		p.Log.Info("dry run: the gating taints would be removed")
	case plan.Change.Gate == marks.GateClose:
		p.Log.Info("dry run: the gating taints would be put on")
	}
	if l := plan.Change.Label; l != nil && *l != in.Node.Labelled {
		p.Log.Info("dry run: the verified label would be changed", zap.Bool("verified", *l))
	}
	p.Log.Info("dry run: the record would say", zap.String("record", plan.Change.Record.Encode()))
}
