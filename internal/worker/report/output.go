// Package report writes a worker's report to the container's termination log and its output.
package report

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
)

// maxQueued limits the output that is kept while nobody reads it.
const maxQueued = 1 << 20

// FlushTime is how long to wait for the output at the end.
const FlushTime = 500 * time.Millisecond

// Output is a writer that never blocks: a container's output is a pipe that nobody may read.
type Output struct {
	to     io.Writer
	mu     sync.Mutex
	wake   *sync.Cond
	queued []byte
	busy   bool
	idle   chan struct{} // closed while there is nothing to write
}

// NewOutput returns an Output to a writer that nothing else writes to.
func NewOutput(to io.Writer) *Output {
	o := &Output{to: to, idle: make(chan struct{})}
	close(o.idle)
	o.wake = sync.NewCond(&o.mu)
	recovery.Go(o.drain, func(*recovery.Panic) {}) // the output is lost, but not the result
	return o
}

// Write queues p, or drops it if it does not fit. It never fails.
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

// Flush waits until everything is written, at most until the given time.
func (o *Output) Flush(until time.Time) {
	o.mu.Lock()
	idle := o.idle
	o.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(time.Until(until)):
	}
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	if o, ok := w.(*Output); ok {
		w = o.to
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// DefaultTerminationLog is the kubelet's default terminationMessagePath.
const DefaultTerminationLog = "/dev/termination-log"

// WriteTerminationLog writes the report to path, where the kubelet reads it. An empty path is the default one, where it
// writes only if the kubelet has created the file: on a host nobody reads it.
func WriteTerminationLog(path string, report result.Report) error {
	flags := os.O_WRONLY | os.O_TRUNC
	if path == "" {
		path = DefaultTerminationLog
	} else {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		if path == DefaultTerminationLog && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	_, err = f.Write(report.Encode())
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	return nil
}
