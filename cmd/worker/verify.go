package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/kube-node-ready/kube-node-ready/internal/check/guard"
	"github.com/kube-node-ready/kube-node-ready/internal/check/input"
	"github.com/kube-node-ready/kube-node-ready/internal/logging"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/verify"
	"github.com/kube-node-ready/kube-node-ready/internal/workerconfig"
)

// verifyNode performs the checks and returns the exit code.
func verifyNode(ctx context.Context, f *flags, getenv func(string) string, stdout, stderr io.Writer, dog *watchdog) (code int) {
	log := newLogger(f, getenv, stderr)
	// The Go runtime would exit with 2, which stands for a configuration error.
	defer func() {
		if p := recover(); p != nil {
			log.Error("a fault in the worker", zap.Any("panic", p), zap.Stack("stack"))
			report := verify.Fault(getenv(verify.EnvNodeName), result.InternalError, "worker", asError(p))
			code = finish(f, log, getenv, report, nil, dog)
		}
	}()
	o := verify.Options{Getenv: getenv, Only: f.only, Skip: f.skip, DryRun: f.dryRun, Kubeconfig: f.kube, OnFinish: logCheck(log)}
	var err error
	if o.Config, err = loadConfig(f.config, getenv); err == nil {
		_, err = o.Select(o.Config.Expand())
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return finish(f, log, getenv, verify.Fault(getenv(verify.EnvNodeName), result.ConfigError, "configuration", err), nil, dog)
	}
	if f.list {
		if err := printList(stdout, f.output, o); err != nil {
			log.Error("the list cannot be written", zap.Error(err))
			return result.ExitInternal
		}
		return result.ExitPassed
	}
	dog.bound(o.Config.TimeoutSeconds)
	return finish(f, log, getenv, verify.Run(ctx, o), stdout, dog)
}

// asError is a panic as an error.
func asError(p any) error {
	var caught *guard.Panic
	if err, ok := p.(error); ok && errors.As(err, &caught) {
		return caught
	}
	return fmt.Errorf("a fault in the worker: %v", p)
}

// finish tells everyone how it ended, the termination log first. A nil writer leaves out the
// printed report.
func finish(f *flags, log *zap.Logger, getenv func(string) string, report result.Report, stdout io.Writer, dog *watchdog) int {
	dog.decided(report.ExitCode())
	if !f.dryRun && !f.list {
		if err := verify.WriteTerminationLog(getenv, report); err != nil {
			log.Error("the exit code stands alone", zap.Error(err))
		}
	}
	if stdout != nil {
		if err := printReport(stdout, f.output, report); err != nil {
			log.Error("the report cannot be printed", zap.Error(err))
		}
	}
	return report.ExitCode()
}

// maxConfigBytes is what a ConfigMap can hold.
const maxConfigBytes = 1 << 20

// loadConfig reads the file, or the environment, or takes the defaults.
func loadConfig(path string, getenv func(string) string) (workerconfig.Config, error) {
	if path != "" {
		data, err := input.ReadFile(path, maxConfigBytes)
		if err != nil {
			return workerconfig.Config{}, fmt.Errorf("--config: %w", err)
		}
		return workerconfig.Load(data, path)
	}
	return workerconfig.Load([]byte(getenv(workerconfig.EnvVar)), workerconfig.EnvVar)
}

func newLogger(f *flags, getenv func(string) string, w io.Writer) *zap.Logger {
	log, err := logging.New(f.logLevel, f.logFormat, w)
	if err != nil {
		panic(err) // parseFlags has refused it
	}
	if node := getenv(verify.EnvNodeName); node != "" {
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
