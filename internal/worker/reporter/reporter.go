// Package reporter turns an agent's health endpoint into a condition of the node that the agent is on. It is compatible with the
// readiness-condition-reporter of the Kubernetes SIG's node-readiness-controller.
package reporter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// The waits after a failed write: each twice the last, shorter by up to half so that the reporters of many nodes do not all come
// at once. The longest is how often a kubelet tries (its nodeStatusUpdateFrequency): a node that joins may not reach the API server
// at first, and is held until it does. longestAsked bounds what the API server may ask for.
const (
	firstWait    = time.Second
	longestWait  = 10 * time.Second
	longestAsked = 5 * time.Minute
)

// rereadEvery is how often the Node is read where nothing is written: it may have been deleted and registered anew, without the
// condition that a rule waits for.
const rereadEvery = time.Minute

const (
	// logPeriod bounds how often an API server that is gone is logged.
	logPeriod = time.Minute
	// shutdownTimeout bounds the write of Unknown at the end.
	shutdownTimeout = 5 * time.Second
)

// loop checks and writes. One goroutine runs it.
type loop struct {
	config  Config
	connect func() (API, error)
	log     *zap.Logger
	metrics *Metrics

	// node is nil until the API server answered, and again after every failure: what was written is then not known.
	node *node
	// read is when the Node was read or written last, and written when the condition was written last.
	read, written time.Time
	// failingSince is when the endpoint began to fail; zero while it does not.
	failingSince time.Time
	// failures are the writes that failed one after the other; the next is not tried before retryAt.
	failures int
	retryAt  time.Time
	logged   time.Time
}

// Run checks and writes until the context ends. What is wrong meanwhile is logged and tried again. connect makes an API client; it
// is called again after every failure, since certificate authorities and addresses change in the life of a reporter.
func Run(ctx context.Context, c Config, connect func() (API, error), log *zap.Logger, m *Metrics) {
	l := &loop{config: c, connect: connect, log: log, metrics: m}
	for ctx.Err() == nil {
		began := time.Now()
		o := check(ctx, c)
		if ctx.Err() != nil {
			break // a check that was cut short proves nothing
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

// pass handles an observation made since began and returns how long to wait for the next.
func (l *loop) pass(ctx context.Context, o observation, began time.Time) time.Duration {
	now := time.Now()
	switch {
	case o.status == statusTrue:
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
	if l.node == nil {
		api, err := l.connect()
		if err != nil {
			return err
		}
		n := newNode(api, l.config)
		if err := n.read(ctx); err != nil {
			return err
		}
		l.node = n
		l.learned(now)
	} else if now.Sub(l.read) >= rereadEvery {
		if err := l.node.read(ctx); err != nil {
			return err
		}
		l.learned(now)
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
	l.log.Log(level, "condition written", zap.String("type", l.config.ConditionType), zap.String("status", o.status),
		zap.String("reason", o.reason), zap.String("message", o.message), zap.Int("failedBefore", l.failures))
	l.failures = 0
	return nil
}

// learned takes over what a read has shown.
func (l *loop) learned(now time.Time) {
	l.read, l.written = now, time.Time{}
	if l.node.present != nil {
		l.written = l.node.present.LastHeartbeatTime
	}
}

// failed backs off. The newest observation is written when the time has come.
func (l *loop) failed(err error) {
	l.metrics.written(resultError)
	l.node = nil
	now := time.Now()
	wait := backoff(l.failures, err)
	l.failures++
	l.retryAt = now.Add(wait)
	if !l.logged.IsZero() && now.Sub(l.logged) < logPeriod {
		return
	}
	l.logged = now
	if refused(err, http.StatusNotFound) {
		err = fmt.Errorf("there is no Node %s yet: %w", l.config.Node, err)
	}
	l.log.Warn("the condition is not written; tried again", zap.Error(err), zap.Int("failures", l.failures), zap.Duration("wait", wait))
}

// backoff is how long to wait after a failure that so many came before.
func backoff(before int, err error) time.Duration {
	wait := longestWait
	if before < 4 { // the next is more than the longest
		wait = firstWait << before
	}
	wait -= rand.N(wait / 2)
	var r *refusal
	if errors.As(err, &r) {
		wait = max(wait, min(r.retryAfter, longestAsked))
	}
	return wait
}

// shutDown writes Unknown. The node that was read last serves, since there is no time to begin anew.
func (l *loop) shutDown() {
	if l.node == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	o := observation{statusUnknown, reasonStopped, "The reporter was stopped"}
	if err := l.node.write(ctx, o, time.Now()); err != nil {
		l.log.Warn("Unknown is not written", zap.Error(err))
	}
}
