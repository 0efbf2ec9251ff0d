// Package report is where a worker's report goes: the container's termination log and its output.
package report

import (
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
)

// maxQueued bounds what is kept of the output while nobody reads it.
const maxQueued = 1 << 20

// FlushTime is how long the output is waited for at the end.
const FlushTime = 500 * time.Millisecond

// Output writes without ever holding its caller up: a container's output is a pipe, and whoever
// should read it may not.
type Output struct {
	to     io.Writer
	mu     sync.Mutex
	wake   *sync.Cond
	queued []byte
	busy   bool
	idle   chan struct{} // closed while there is nothing to write
}

// NewOutput returns an Output to a writer, which no one else may write to.
func NewOutput(to io.Writer) *Output {
	o := &Output{to: to, idle: make(chan struct{})}
	close(o.idle)
	o.wake = sync.NewCond(&o.mu)
	recovery.Go(o.drain, func(*recovery.Panic) {}) // the output is lost, and not the verdict
	return o
}

// Write queues p. What does not fit is dropped. There is never an error.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queued)+len(p) > maxQueued {
		return len(p), nil
	}
	if len(o.queued) == 0 && !o.busy {
		o.idle = make(chan struct{})
	}
	o.queued = append(o.queued, p...)
	o.wake.Signal()
	return len(p), nil
}

func (o *Output) drain() {
	for {
		o.mu.Lock()
		for len(o.queued) == 0 {
			if o.busy {
				o.busy = false
				close(o.idle)
			}
			o.wake.Wait()
		}
		batch := o.queued
		o.queued, o.busy = nil, true
		o.mu.Unlock()
		_, _ = o.to.Write(batch)
	}
}

// Flush waits until all is written, or the time has come.
func (o *Output) Flush(until time.Time) {
	o.mu.Lock()
	idle := o.idle
	o.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(time.Until(until)):
	}
}

// IsTerminal reports whether a person looks at what is written to w.
func IsTerminal(w io.Writer) bool {
	if o, ok := w.(*Output); ok {
		w = o.to
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
