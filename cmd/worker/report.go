package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"go.uber.org/zap"

	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/reporter"
)

const commandReport = "report"

// exitReport is the SIG's exit code of a reporter that cannot start. One that has started exits with 0 when it is
// stopped.
const exitReport = 1

const reportUsage = `Reports the health of an agent on this node as a condition of the Node.

Usage:
  ` + program + ` report [flags]

Environment:
  NODE_NAME                   name of the Node; required
  CHECK_ENDPOINT              http or https URL that answers 2xx while the agent is healthy; required
  CONDITION_TYPE              the condition's type; required
  CHECK_INTERVAL              default 30s
  HEARTBEAT_PERIOD            how often an unchanged condition is written again, default 5m
  FAILURE_GRACE               how long the agent must fail before the condition becomes False, default 1s
  CHECK_CA_FILE               PEM file of CA certificates for an https endpoint; default: those of the image
  IMPERSONATE_NODE            true acts as system:node:<NODE_NAME>, default false
  METRICS_BIND_ADDRESS        address of /metrics and /healthz, default :9445; 0 turns both off
  REPORT_UNKNOWN_ON_SHUTDOWN  true sets the condition to Unknown on shutdown, default false

Flags:
`

// reportCondition runs the reporter and returns the exit code.
func reportCondition(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	f := newFlags(commandReport)
	f.addCommon(cmp.Or(getenv("LOG_LEVEL"), worker.DefaultLogLevel), "",
		cmp.Or(getenv("LOG_FORMAT"), worker.DefaultLogFormat), "")
	err := f.set.Parse(args)
	if err == nil && f.set.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", f.set.Arg(0))
	}
	usage := reportUsage + f.set.FlagUsages()
	if code, done := answer(program+" report", err, f.version, usage, stdout, stderr); done {
		return min(code, exitReport)
	}
	log, err := newLogger(f.logLevel, f.logFormat, stderr)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "%s report: %v\n", program, err)
		return exitReport
	}
	c, warnings, err := reporter.FromEnv(getenv)
	for _, w := range warnings {
		log.Warn(w)
	}
	if err == nil {
		_, err = worker.Client(getenv) // waiting for a service account would not help
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "%s report: %v\n", program, err)
		return exitReport
	}
	log = log.With(zap.String("node", c.Node))
	metrics := reporter.NewMetrics(version.Version, c.Interval)
	if serve, err := metrics.Listen(c.MetricsAddress); err != nil {
		// Agents on the host's network share its ports.
		log.Warn("cannot serve metrics: set METRICS_BIND_ADDRESS to a free address, or to 0 to turn them off", zap.Error(err))
	} else {
		recovery.Go(serve, func(p *recovery.Panic) {
			log.Error("the metrics server stopped because of an error", zap.Error(p))
		})
	}
	log.Info("reporting", zap.String("type", c.ConditionType), zap.Duration("interval", c.Interval),
		zap.Duration("heartbeat", c.Heartbeat))
	reporter.Run(ctx, c, func() (reporter.API, error) { return worker.Client(getenv) }, log, metrics)
	return 0
}
