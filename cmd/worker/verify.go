package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/kube-node-ready/kube-node-ready/internal/logging"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/input"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/report"
)

// verifyNode performs the checks and returns the exit code.
func verifyNode(ctx context.Context, f *flags, getenv func(string) string, stdout, stderr io.Writer, dog *watchdog) (code int) {
	log := newLogger(f, getenv, stderr)
	// The Go runtime would exit with 2, which stands for a configuration error.
	defer func() {
		if p := recover(); p != nil {
			log.Error("internal error of the worker", zap.Any("panic", p), zap.Stack("stack"))
			code = finish(f, log, getenv, worker.Aborted(getenv(worker.EnvNodeName), result.InternalError, "worker", asError(p)), nil, dog)
		}
	}()
	o := worker.Options{Getenv: getenv, Only: f.only, Skip: f.skip, DryRun: f.dryRun, Kubeconfig: f.kube, OnFinish: logCheck(log)}
	var err error
	if o.Config, err = loadConfig(f.config, getenv); err == nil {
		_, err = o.Select(o.Config.Expand())
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return finish(f, log, getenv, worker.Aborted(getenv(worker.EnvNodeName), result.ConfigError, "configuration", err), nil, dog)
	}
	if f.list {
		if err := printList(stdout, f.output, o); err != nil {
			log.Error("the list cannot be written", zap.Error(err))
			return result.ExitInternal
		}
		return result.ExitPassed
	}
	dog.bound(o.Config.TimeoutSeconds)
	return finish(f, log, getenv, worker.Run(ctx, o), stdout, dog)
}

// asError is a panic as an error.
func asError(p any) error {
	var caught *recovery.Panic
	if err, ok := p.(error); ok && errors.As(err, &caught) {
		return caught
	}
	return fmt.Errorf("internal error of the worker: %v", p)
}

// finish reports how it ended, the termination log first. A nil writer leaves out the
// printed report.
func finish(f *flags, log *zap.Logger, getenv func(string) string, r result.Report, stdout io.Writer, dog *watchdog) int {
	dog.decided(r.ExitCode())
	if !f.dryRun && !f.list {
		if err := report.WriteTerminationLog(getenv(worker.EnvTerminationLog), r); err != nil {
			log.Error("the exit code stands alone", zap.Error(err))
		}
	}
	if stdout != nil {
		if err := printReport(stdout, f.output, r); err != nil {
			log.Error("the report cannot be printed", zap.Error(err))
		}
	}
	return r.ExitCode()
}

// maxConfigBytes is what a ConfigMap can hold.
const maxConfigBytes = 1 << 20

// loadConfig reads the file, or the environment, or takes the defaults.
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

func newLogger(f *flags, getenv func(string) string, w io.Writer) *zap.Logger {
	log, err := logging.New(f.logLevel, f.logFormat, w)
	if err != nil {
		panic(err) // parseFlags has refused it
	}
	if node := getenv(worker.EnvNodeName); node != "" {
		log = log.With(zap.String("node", node))
	}
	return log
}

// logCheck logs each check as it ends; failures at a level that is shown by default.
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

// printReport prints one line of JSON, or a table, which has colours on a terminal unless NO_COLOR
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
			rows = append(rows, []string{s.Name, string(s.Type), string(s.Severity), s.Timeout().String(), fmt.Sprint(s.MaxAttempts()), strings.Join(s.DependsOn, ", ")})
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
