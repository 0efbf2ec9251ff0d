// Package daemonset is a node that verifies itself: the process of a DaemonSet's pod gathers what the node says, asks package
// decide what is next, runs the checks and writes the result, as the controller does with worker pods.
package daemonset

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// API is what is asked of the worker's API client.
type API interface {
	// Send sends one request.
	Send(ctx context.Context, r apiserver.Request) (apiserver.Response, error)
	// Watch returns at the first change that a watch request reports.
	Watch(ctx context.Context, path string) (changed bool, err error)
}

const (
	// requestTimeout bounds one request to the API server. It is not cut short when the process is told to stop.
	requestTimeout = 10 * time.Second
	// shutdownGrace is what is left for the last look at the node when the process is told to stop.
	shutdownGrace = 5 * time.Second
	// The waits after requests that failed: each twice the last, less up to half so that the nodes do not come together.
	firstWait, longestWait = time.Second, 10 * time.Second
	// rewatch is how soon after a watch that could not be had, or was ended, the node is read again.
	rewatch = 5 * time.Second
)

// Process verifies one node. Its exported fields must be set before Run or DryRun, which are called once.
type Process struct {
	// Config is from config.ParseDaemonSet.
	Config *config.Config
	// Node is the node's name.
	Node string
	// Connect makes a client; it is called again after a request failed, since addresses and authorities change. nil where there
	// is no cluster, for DryRun.
	Connect func() (API, error)
	// Verify runs checks. When its context ends before, what it returns counts for nothing.
	Verify  func(ctx context.Context, c worker.Config) result.Report
	Log     *zap.Logger
	Metrics *Metrics

	builder  *workerpod.Builder
	api      API
	failures int
	// What is known of the node of this UID, on the process's own clock.
	uid    string
	self   decide.LocalWorker
	needed time.Time
	wanted decide.PendingCondition
	// ended delivers the report of the attempt under way; nil while there is none.
	ended chan result.Report
	stop  context.CancelFunc // stops that attempt
	seen  *corev1.Node       // as the API server answered last; nil once that is no longer fresh
}

// errAgain asks for another pass at once: the node has changed, by us or by others.
var errAgain = errors.New("decide again")

// Run verifies the node until ctx ends, which is when its DaemonSet no longer selects the node or replaces the pod. What is wrong
// meanwhile is logged and tried again. An error is a configuration of which no worker can be told.
func (p *Process) Run(ctx context.Context) error {
	if err := p.prepare(); err != nil {
		return err
	}
	defer func() { p.abandon() }()
	for ctx.Err() == nil {
		next, err := p.pass(ctx)
		p.Metrics.beat()
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errAgain):
			p.failures = 0
		case err != nil:
			p.rest(ctx, p.failed(err))
		default:
			p.failures = 0
			p.rest(ctx, next)
		}
	}
	p.leave()
	return nil
}

// prepare makes what is the same for every pass.
func (p *Process) prepare() (err error) {
	p.builder, err = workerpod.NewBuilder(p.Config, "", "")
	return err
}

// next is when to look again: after wait, or when one of the watches reports a change.
type next struct {
	wait    time.Duration
	watches []string
}

// sooner looks again after d, or sooner if something else asked for that.
func (n *next) sooner(d time.Duration) {
	if d > 0 && d < n.wait {
		n.wait = d
	}
}

// rest waits for what is to be waited for.
func (p *Process) rest(ctx context.Context, n next) {
	ctx, cancel := context.WithTimeout(ctx, n.wait)
	defer cancel()
	changed := make(chan struct{}, len(n.watches))
	for _, path := range n.watches {
		api := p.api
		recovery.Go(func() {
			if ok, err := api.Watch(ctx, path); !ok {
				if err != nil && ctx.Err() == nil {
					p.Log.Debug("a watch ended", zap.String("path", path), zap.Error(err))
				}
				pause(ctx, rewatch)
			}
			changed <- struct{}{}
		}, func(caught *recovery.Panic) {
			p.Log.Error("internal error of a watch", zap.Error(caught))
			changed <- struct{}{}
		})
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case r := <-p.ended:
		p.finish(r)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// failed accounts for a request that failed, and backs off. A connection of its own may lead to another API server.
func (p *Process) failed(err error) next {
	p.api, p.seen = nil, nil
	wait := min(firstWait<<min(p.failures, 10), longestWait)
	p.failures++
	wait -= rand.N(wait / 2)
	if refused(err, http.StatusNotFound) {
		p.Log.Warn("there is no such node yet", zap.Duration("wait", wait))
	} else {
		p.Log.Warn("the API server did not take a request; it is tried again", zap.Error(err), zap.Int("failures", p.failures), zap.Duration("wait", wait))
	}
	return next{wait: wait}
}

// begin runs the checks of an attempt, beside all else.
func (p *Process) begin(ctx context.Context, in decide.Input) {
	p.self.Attempt = in.NextAttempt()
	p.Log.Info("the checks begin", zap.Int32("attempt", p.self.Attempt.Number))
	p.self.Began = time.Now()
	var running context.Context
	running, p.stop = context.WithCancel(ctx)
	ended := make(chan result.Report, 1)
	p.ended = ended
	told := p.told(in.Profile)
	p.Metrics.begin(told.Expand())
	recovery.Go(func() { ended <- p.Verify(running, told) }, func(caught *recovery.Panic) {
		ended <- worker.Aborted(p.Node, result.InternalError, "worker", caught)
	})
}

// told is what a worker of the profile is told to check.
func (p *Process) told(e config.Effective) worker.Config {
	return worker.Config{Checks: e.Checks, DNSTestDomains: e.DNSTestDomains,
		CheckTimeoutSeconds: min(p.Config.Worker.CheckTimeoutSeconds, e.TimeoutSeconds), TimeoutSeconds: e.TimeoutSeconds}
}

// finish takes the report of the attempt under way.
func (p *Process) finish(r result.Report) {
	p.abandon()
	p.Metrics.finished(r, time.Now())
	p.self.Attempt.Result = resultOf(r)
}

// abandon ends the attempt under way, if there is one.
func (p *Process) abandon() {
	if p.stop != nil {
		p.stop()
	}
	p.stop, p.ended = nil, nil
}

// resultOf is what came of an attempt that left the report.
func resultOf(r result.Report) *attempt.Result {
	out := attempt.FromExitCode(int32(r.ExitCode()), &r)
	out.Duration = time.Duration(r.DurationMs) * time.Millisecond
	if check := r.Checks; out.Check == "" && out.Outcome == attempt.Inconclusive && len(check) > 0 && check[0].Outcome == result.Failed {
		out.Message = attempt.Text(check[0].Message) // why there was no attempt stands where failures do
	}
	return out
}

// leave is the last look at a node that somebody labelled by hand: its DaemonSet took the process off for that, maybe before the
// change of the label was seen.
func (p *Process) leave() {
	if p.self.Released || p.api == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	for ctx.Err() == nil {
		p.seen = nil
		n, err := p.read(ctx)
		if err != nil {
			return
		}
		in := p.observe(n)
		plan := decide.Next(in, decide.Evidence{Fresh: true}, time.Now())
		if !plan.ReleasesLabelled() {
			return
		}
		if err := p.record(ctx, n, in, plan); !errors.Is(err, errAgain) || p.self.Released {
			return
		}
	}
}
