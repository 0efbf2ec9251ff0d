package main

import (
	"io"
	"sync"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/check/guard"
)

// maxQueued bounds what is kept of the output while nobody reads it.
const maxQueued = 1 << 20

// flushTime is how long the output is waited for at the end.
const flushTime = 500 * time.Millisecond

// later writes without ever holding its caller up: a container's output is a pipe, and whoever
// should read it may not.
type later struct {
	to     io.Writer
	mu     sync.Mutex
	wake   *sync.Cond
	queued []byte
	busy   bool
	idle   chan struct{} // closed while there is nothing to write
}

func newLater(to io.Writer) *later {
	l := &later{to: to, idle: make(chan struct{})}
	close(l.idle)
	l.wake = sync.NewCond(&l.mu)
	guard.Go(l.drain, func(*guard.Panic) {}) // the output is lost, and not the verdict
	return l
}

// Write queues p. What does not fit is dropped.
func (l *later) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queued)+len(p) > maxQueued {
		return len(p), nil
	}
	if len(l.queued) == 0 && !l.busy {
		l.idle = make(chan struct{})
	}
	l.queued = append(l.queued, p...)
	l.wake.Signal()
	return len(p), nil
}

func (l *later) drain() {
	for {
		l.mu.Lock()
		for len(l.queued) == 0 {
			if l.busy {
				l.busy = false
				close(l.idle)
			}
			l.wake.Wait()
		}
		batch := l.queued
		l.queued, l.busy = nil, true
		l.mu.Unlock()
		_, _ = l.to.Write(batch)
	}
}

// flush waits until all is written, or the time has come.
func (l *later) flush(until time.Time) {
	l.mu.Lock()
	idle := l.idle
	l.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(time.Until(until)):
	}
}
