package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/input"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/report"
)

// verifyNode performs the checks and returns the exit code.
func verifyNode(
	ctx context.Context, f *flags, getenv func(string) string, stdout, stderr io.Writer, w *watchdog,
) (code int) {
	log, err := newLogger(f.logLevel, f.logFormat, stderr)
	if err != nil {
		panic(err) // parseFlags has validated them
	}
	node := getenv(worker.EnvNodeName)
	if node != "" {
		log = log.With(zap.String("node", node))
	}
	abort := func(outcome result.Outcome, what string, err error) int {
		return finish(f, log, getenv, worker.Aborted(node, outcome, what, err), nil, w)
	}
	// The Go runtime would exit with 2, which means a configuration error.
	defer func() {
		if p := recover(); p != nil {
			log.Error("internal error of the worker", zap.Any("panic", p), zap.Stack("stack"))
			code = abort(result.InternalError, "worker", asError(p))
		}
	}()
	o := worker.Options{Getenv: getenv, Only: f.only, Skip: f.skip, DryRun: f.dryRun, Kubeconfig: f.kubeconfig,
		OnFinish: logCheck(log)}
	if o.Config, err = loadConfig(f.config, getenv); err == nil {
		_, err = o.Select(o.Config.Expand())
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return abort(result.ConfigError, "configuration", err)
	}
	if f.list {
		if err := printList(stdout, f.output, o); err != nil {
			log.Error("cannot write the list", zap.Error(err))
			return result.ExitInternal
		}
		return result.ExitPassed
	}
	w.setTimeout(o.Config.TimeoutSeconds)
	return finish(f, log, getenv, worker.Run(ctx, o), stdout, w)
}

// asError converts a panic.
func asError(p any) error {
	var caught *recovery.Panic
	if err, ok := p.(error); ok && errors.As(err, &caught) {
		return caught
	}
	return fmt.Errorf("internal error of the worker: %v", p)
}

// finish writes the report to the termination log and, unless stdout is nil, prints it. It returns the exit code.
func finish(
	f *flags, log *zap.Logger, getenv func(string) string, r result.Report, stdout io.Writer, w *watchdog,
) int {
	w.setExitCode(r.ExitCode())
	if !f.dryRun && !f.list {
		if err := report.WriteTerminationLog(getenv(worker.EnvTerminationLog), r); err != nil {
			log.Error("cannot write the report to the termination log", zap.Error(err))
		}
	}
	if stdout != nil {
		if err := printReport(stdout, f.output, r); err != nil {
			log.Error("cannot print the report", zap.Error(err))
		}
	}
	return r.ExitCode()
}

// maxConfigBytes is what a ConfigMap can hold.
const maxConfigBytes = 1 << 20

// loadConfig reads the file, or else the environment.
func loadConfig(path string, getenv func(string) string) (worker.Config, error) {
	if path != "" {
		data, err := input.ReadFile(path, maxConfigBytes)
		if err != nil {
			return worker.Config{}, fmt.Errorf("--config: %w", err)
		}
		return worker.Load(data, path)
	}
	return worker.Load([]byte(getenv(worker.EnvVar)), worker.EnvVar)
}

// logCheck logs each check as it ends, a failure as a warning.
func logCheck(log *zap.Logger) func(result.Check) {
	return func(c result.Check) {
		level := zapcore.InfoLevel
		if c.Outcome == result.Failed || c.Outcome == result.Inconclusive || c.Outcome == result.Warning {
			level = zapcore.WarnLevel
		}
		log.Log(level, "check "+string(c.Outcome), zap.String("check", c.Name), zap.String("type", c.Type),
			zap.Duration("duration", time.Duration(c.DurationMs)*time.Millisecond),
			zap.String("reason", c.Reason), zap.String("message", c.Message))
	}
}

// printReport prints one line of JSON, or a table. The table has colours on a terminal unless NO_COLOR
// (https://no-color.org) is set.
func printReport(w io.Writer, form string, r result.Report) error {
	if form == outputJSON {
		_, err := fmt.Fprintf(w, "%s\n", r.Encode())
		return err
	}
	return report.Text(w, r, report.IsTerminal(w) && os.Getenv("NO_COLOR") == "")
}

// printList prints the checks that would be performed.
func printList(w io.Writer, form string, o worker.Options) error {
	specs := o.Config.Expand()
	selected, err := o.Select(specs)
	if err != nil {
		return err
	}
	kept := specs[:0]
	rows := [][]string{{"CHECK", "TYPE", "SEVERITY", "TIMEOUT", "ATTEMPTS", "DEPENDS ON"}}
	for _, s := range specs {
		if selected[s.Name] {
			kept = append(kept, s)
			rows = append(rows, []string{s.Name, string(s.Type), s.Severity, s.Timeout().String(),
				fmt.Sprint(s.MaxAttempts()), strings.Join(s.DependsOn, ", ")})
		}
	}
	if form == outputJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(kept)
	}
	_, err = fmt.Fprintln(w, strings.Join(report.Table(rows), "\n"))
	return err
}

// watchdog ends a worker that hangs at its timeout: a dead disk can block even opening a file.
type watchdog struct {
	start    time.Time
	timer    *time.Timer
	code     atomic.Int32
	reported atomic.Bool // the termination log is written, or being written
}

// startWatchdog starts a watchdog; exit ends the process.
func startWatchdog(getenv func(string) string, dryRun bool, exit func(int)) *watchdog {
	w := &watchdog{start: time.Now()}
	w.code.Store(result.ExitInternal)
	w.timer = time.AfterFunc(worker.DefaultTimeoutSeconds*time.Second, func() {
		if !dryRun && !w.reported.Load() {
			written := make(chan struct{})
			recovery.Go(func() {
				defer close(written)
				err := errors.New("the worker did not end within its timeoutSeconds")
				r := worker.Aborted(getenv(worker.EnvNodeName), result.InternalError, "worker", err)
				_ = report.WriteTerminationLog(getenv(worker.EnvTerminationLog), r)
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

// setTimeout sets the worker's timeout, from its start.
func (w *watchdog) setTimeout(seconds int32) {
	w.timer.Reset(max(0, time.Duration(seconds)*time.Second-time.Since(w.start)))
}

// setExitCode sets the exit code. The caller then writes the report.
func (w *watchdog) setExitCode(code int) {
	w.code.Store(int32(code))
	w.reported.Store(true)
}

func (w *watchdog) stop() { w.timer.Stop() }
