package main

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/report"
)

// watchdog ends the worker when its time is over, whatever hangs: a disk that does not answer
// holds up even a file's opening.
type watchdog struct {
	start  time.Time
	timer  *time.Timer
	code   atomic.Int32
	report atomic.Bool // written, or under way
}

// watch starts a watchdog; exit ends the process.
func watch(getenv func(string) string, dryRun bool, exit func(int)) *watchdog {
	w := &watchdog{start: time.Now()}
	w.code.Store(result.ExitInternal)
	w.timer = time.AfterFunc(worker.DefaultTimeoutSeconds*time.Second, func() {
		if !dryRun && !w.report.Load() {
			written := make(chan struct{})
			recovery.Go(func() {
				defer close(written)
				_ = report.WriteTerminationLog(getenv(worker.EnvTerminationLog), worker.Aborted(getenv(worker.EnvNodeName), result.InternalError, "worker",
					errors.New("the worker did not come to an end within its timeoutSeconds")))
			}, func(*recovery.Panic) {})
			select {
			case <-written:
			case <-time.After(report.FlushTime):
			}
		}
		exit(int(w.code.Load()))
	})
	return w
}

// bound sets the time that the worker has in all.
func (w *watchdog) bound(seconds int32) {
	w.timer.Reset(max(0, time.Duration(seconds)*time.Second-time.Since(w.start)))
}

// decided is told the exit code once it is known, before anything is written.
func (w *watchdog) decided(code int) {
	w.code.Store(int32(code))
	w.report.Store(true)
}

func (w *watchdog) stop() { w.timer.Stop() }
