// Package reporter reports an agent's health endpoint as a condition of the node that the agent runs on. It is
// compatible with the readiness-condition-reporter of the Kubernetes SIG's node-readiness-controller.
package reporter

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
)

const (
	// rereadPeriod is how often the Node is read while nothing is written: it may have been deleted and registered again,
	// without the condition that a rule waits for.
	rereadPeriod = time.Minute
	// logPeriod limits how often an unreachable API server is logged.
	logPeriod = time.Minute
	// shutdownTimeout limits the write of Unknown at the end.
	shutdownTimeout = 5 * time.Second
)

// loop checks and writes, in one goroutine.
type loop struct {
	config  Config
	connect func() (API, error)
	log     *zap.Logger
	metrics *Metrics

	// node is nil before the API server has answered, and after every failure: it is then unknown what was written.
	node *node
	// read is when the Node was read or written last, written when its condition was.
	read, written time.Time
	// failingSince is when the endpoint began to fail; zero if it does not.
	failingSince time.Time
	// failures counts the consecutive failed writes; the next try is not before retryAt.
	failures int
	retryAt  time.Time
	logged   time.Time
}

// Run checks and writes until the context ends. It logs and retries errors. It calls connect for a new API client after
// every failure, since the API server's CA and address may change.
func Run(ctx context.Context, c Config, connect func() (API, error), log *zap.Logger, m *Metrics) {
	l := &loop{config: c, connect: connect, log: log, metrics: m}
	for ctx.Err() == nil {
		began := time.Now()
		o := check(ctx, c)
		if ctx.Err() != nil {
			break // an interrupted check proves nothing
		}
		m.checked(o, time.Since(began))
		select {
		case <-ctx.Done():
		case <-time.After(l.pass(ctx, o, began)):
		}
	}
	if c.UnknownOnShutdown {
		l.shutDown()
	}
}

// pass handles the observation of a check that started at began, and returns how long to wait for the next.
func (l *loop) pass(ctx context.Context, o observation, began time.Time) time.Duration {
	now := time.Now()
	switch {
	case o.status == corev1.ConditionTrue:
		l.failingSince = time.Time{}
	case l.failingSince.IsZero():
		l.failingSince = now
	}
	nextPass := began.Add(l.config.Interval)
	if !now.Before(l.retryAt) {
		switch err := l.sync(ctx, o, now); {
		case err == nil:
			l.failures = 0
		case ctx.Err() == nil:
			l.failed(err)
		}
	}
	if l.retryAt.After(now) && l.retryAt.Before(nextPass) {
		nextPass = l.retryAt
	}
	if graceEnd := l.failingSince.Add(l.config.Grace); graceEnd.After(now) && graceEnd.Before(nextPass) {
		nextPass = graceEnd
	}
	return time.Until(nextPass)
}

// sync writes an observation if it is due.
func (l *loop) sync(ctx context.Context, o observation, now time.Time) error {
	if err := l.readNode(ctx, now); err != nil {
		return err
	}
	var failing time.Duration
	if !l.failingSince.IsZero() {
		failing = now.Sub(l.failingSince)
	}
	present := l.node.present
	if !due(l.config, present, l.written, o, failing, now) {
		l.metrics.written(resultSkipped)
		return nil
	}
	if err := l.node.write(ctx, o, now); err != nil {
		return err
	}
	l.metrics.written(resultSuccess)
	l.read, l.written = now, now
	level := zap.DebugLevel
	if present == nil || present.Status != o.status || l.failures > 0 {
		level = zap.InfoLevel
	}
	l.log.Log(level, "condition written", zap.String("type", l.config.ConditionType),
		zap.String("status", string(o.status)), zap.String("reason", o.reason), zap.String("message", o.message),
		zap.Int("failedBefore", l.failures))
	l.failures = 0
	return nil
}

// readNode reads the Node if it is unknown, or was read long ago.
func (l *loop) readNode(ctx context.Context, now time.Time) error {
	n := l.node
	if n != nil && now.Sub(l.read) < rereadPeriod {
		return nil
	}
	if n == nil {
		api, err := l.connect()
		if err != nil {
			return err
		}
		n = newNode(api, l.config)
	}
	if err := n.read(ctx); err != nil {
		return err
	}
	l.node, l.read, l.written = n, now, time.Time{}
	if n.present != nil {
		l.written = n.present.LastHeartbeatTime.Time
	}
	return nil
}

// failed sets the time of the next try, which writes the observation that is then the latest.
func (l *loop) failed(err error) {
	l.metrics.written(resultError)
	l.node = nil
	now := time.Now()
	wait := apiserver.Backoff(l.failures, err)
	l.failures++
	l.retryAt = now.Add(wait)
	if !l.logged.IsZero() && now.Sub(l.logged) < logPeriod {
		return
	}
	l.logged = now
	if apiserver.HasStatus(err, http.StatusNotFound) {
		err = fmt.Errorf("node %s does not exist yet: %w", l.config.Node, err)
	}
	l.log.Warn("cannot write the condition; retrying",
		zap.Error(err), zap.Int("failures", l.failures), zap.Duration("wait", wait))
}

// shutDown writes Unknown to the node that was read last; there is no time to read it again.
func (l *loop) shutDown() {
	if l.node == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	o := observation{corev1.ConditionUnknown, reasonStopped, "The reporter was stopped"}
	if err := l.node.write(ctx, o, time.Now()); err != nil {
		l.log.Warn("cannot set the condition to Unknown", zap.Error(err))
	}
}
