// Package daemonset is a node that verifies itself. The process of a DaemonSet's pod does for its node what the
// controller does with worker pods. It reads the node, calls package decide for the next step, runs the checks and
// writes the result.
package daemonset

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// API is the part of the worker's API client that a process uses.
type API interface {
	// Send sends one request.
	Send(ctx context.Context, r apiserver.Request) (apiserver.Response, error)
	// Watch returns at the first change.
	Watch(ctx context.Context, path string) (changed bool, err error)
}

const (
	// requestTimeout of one request to the API server. A shutdown does not interrupt a request.
	requestTimeout = 10 * time.Second
	// shutdownGrace is the time to read and write the node at shutdown.
	shutdownGrace = 5 * time.Second
	// rewatch is how soon the node is read again after a watch has failed or ended.
	rewatch = 5 * time.Second
)

// Process verifies one node. Its exported fields must be set before Run or DryRun, which are called once.
type Process struct {
	// Config is from config.ParseDaemonSet.
	Config *config.Config
	// Node is the node's name.
	Node string
	// Connect makes a client. It is called again after a failed request, since addresses and CAs change. It is nil without
	// a cluster, for DryRun.
	Connect func() (API, error)
	// Verify runs checks. Its result is ignored if its context ends before.
	Verify  func(ctx context.Context, c worker.Config) result.Report
	Log     *zap.Logger
	Metrics *Metrics

	evidence kind.Evidence
	builder  *workerpod.Builder
	api      API
	failures int
	// The state of the node with this UID, on the process's own clock.
	uid    string
	self   decide.LocalWorker
	needed time.Time
	wanted decide.PendingCondition
	// ended delivers the report of the running attempt, which cancel stops; nil without an attempt.
	ended  chan result.Report
	cancel context.CancelFunc
	// latest is the response to the last write; nil once it may be outdated.
	latest *corev1.Node
}

// errAgain requests another pass at once, since the node has changed.
var errAgain = errors.New("decide again")

// Run verifies the node until ctx ends, when the DaemonSet no longer selects the node or replaces the pod. It logs and
// retries errors. It returns an error only for a configuration that cannot be passed to a worker.
func (p *Process) Run(ctx context.Context) error {
	if err := p.prepare(); err != nil {
		return err
	}
	defer p.cancelAttempt()
	for ctx.Err() == nil {
		next, err := p.pass(ctx)
		p.Metrics.OperationEnded()
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errAgain):
			p.failures = 0
		case err != nil:
			p.wait(ctx, p.failed(err))
		default:
			p.failures = 0
			p.wait(ctx, next)
		}
	}
	p.shutDown()
	return nil
}

func (p *Process) prepare() (err error) {
	p.builder, err = workerpod.NewBuilder(p.Config, "", "")
	return err
}

// schedule is when the next pass starts: after wait, or when one of the watches reports a change.
type schedule struct {
	wait    time.Duration
	watches []string
}

// within starts the next pass after d at the latest.
func (s *schedule) within(d time.Duration) {
	if d > 0 {
		s.wait = min(s.wait, d)
	}
}

// wait waits for the next pass, or the end of the running attempt.
func (p *Process) wait(ctx context.Context, s schedule) {
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	changed := make(chan struct{}, len(s.watches))
	for _, path := range s.watches {
		api := p.api
		recovery.Go(func() {
			if ok, err := api.Watch(ctx, path); !ok {
				if err != nil && ctx.Err() == nil {
					p.Log.Debug("a watch ended", zap.String("path", path), zap.Error(err))
				}
				select {
				case <-ctx.Done():
				case <-time.After(rewatch):
				}
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
		p.finishAttempt(r)
	}
}

// failed records a failed request and returns the backoff. A new connection may lead to another API server.
func (p *Process) failed(err error) schedule {
	p.api, p.latest = nil, nil
	wait := apiserver.Backoff(p.failures, err)
	p.failures++
	if apiserver.HasStatus(err, http.StatusNotFound) {
		p.Log.Warn("the node does not exist yet", zap.Duration("wait", wait))
	} else {
		p.Log.Warn("a request to the API server failed; it is retried",
			zap.Error(err), zap.Int("failures", p.failures), zap.Duration("wait", wait))
	}
	return schedule{wait: wait}
}

// startAttempt runs the checks of an attempt in the background.
func (p *Process) startAttempt(ctx context.Context, in decide.Input) {
	p.self.Attempt = in.NextAttempt()
	p.Log.Info("starting the checks", zap.Int32("attempt", p.self.Attempt.Number))
	p.self.Began = time.Now()
	ctx, p.cancel = context.WithCancel(ctx)
	ended := make(chan result.Report, 1)
	p.ended = ended
	c := p.workerConfig(in.Profile)
	p.Metrics.attemptStarted(c.Expand())
	recovery.Go(func() { ended <- p.Verify(ctx, c) }, func(caught *recovery.Panic) {
		ended <- worker.Aborted(p.Node, result.InternalError, "worker", caught)
	})
}

// workerConfig is the configuration of a worker of the profile.
func (p *Process) workerConfig(e config.Effective) worker.Config {
	return worker.Config{Checks: e.Checks, DNSTestDomains: e.DNSTestDomains,
		CheckTimeoutSeconds: min(p.Config.Worker.CheckTimeoutSeconds, e.TimeoutSeconds), TimeoutSeconds: e.TimeoutSeconds}
}

// finishAttempt takes the report of the running attempt.
func (p *Process) finishAttempt(r result.Report) {
	p.cancelAttempt()
	p.Metrics.attemptEnded(r, time.Now())
	p.self.Attempt.Result = resultOf(r)
}

// cancelAttempt ends the running attempt, if there is one.
func (p *Process) cancelAttempt() {
	if p.cancel != nil {
		p.cancel()
	}
	p.cancel, p.ended = nil, nil
}

// resultOf is the result of an attempt with the report.
func resultOf(r result.Report) *attempt.Result {
	out := attempt.FromExitCode(int32(r.ExitCode()), &r)
	out.Duration = time.Duration(r.DurationMs) * time.Millisecond
	// The report of a worker that could not perform its checks has the cause like a failed check (worker.Aborted).
	aborted := len(r.Checks) > 0 && r.Checks[0].Outcome == result.Failed
	if aborted && out.Check == "" && out.Outcome == attempt.Inconclusive {
		out.Message = attempt.Text(r.Checks[0].Message)
	}
	return out
}

// shutDown releases a node that somebody has labelled as verified: the DaemonSet stops the process for that, maybe
// before the watch reports the label.
func (p *Process) shutDown() {
	if p.self.Released || p.api == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	for ctx.Err() == nil {
		p.latest = nil
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
