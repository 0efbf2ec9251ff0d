// Command kube-node-ready-worker verifies the node that it runs on. It runs the checks of its configuration, reports to
// standard output and the container's termination log, and exits with a code for the result (see internal/result). The
// command "report" instead reports an agent's health as a condition of the node (see internal/worker/reporter). The
// command "daemonset", or the program name kube-node-ready, does for its node what the controller does (see
// internal/daemonset).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/kube-node-ready/kube-node-ready/internal/logging"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/report"
)

const program = "kube-node-ready-worker"

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	recovery.Go(func() {
		<-signals
		cancel(worker.ErrInterrupted)
	}, func(p *recovery.Panic) { cancel(p) })
	// A closed pipe must not end the process: the exit code still counts. The signal is caught and not ignored, since the
	// commands of checks inherit what is ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	stdout, stderr := report.NewOutput(os.Stdout), report.NewOutput(os.Stderr)
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == nameOfDaemonSet {
		args = append([]string{commandDaemonSet}, args...)
	}
	code := run(ctx, args, os.Getenv, stdout, stderr, os.Exit)
	end := time.Now().Add(report.FlushTime)
	stdout.Flush(end)
	stderr.Flush(end)
	os.Exit(code)
}

// run is the program and returns its exit code. It calls exit to end a process that hangs.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer, exit func(int)) int {
	if len(args) > 0 {
		switch args[0] {
		case commandReport:
			return reportCondition(ctx, args[1:], getenv, stdout, stderr)
		case commandDaemonSet:
			return verifyOwnNode(ctx, args[1:], getenv, stdout, stderr)
		}
	}
	f, err := parseFlags(args, getenv, report.IsTerminal(stdout))
	if code, done := answer(program, err, f.version, f.usage(), stdout, stderr); done {
		return code
	}
	w := startWatchdog(getenv, f.dryRun || f.list, exit)
	defer w.stop()
	return verifyNode(ctx, f, getenv, stdout, stderr, w)
}

// answer answers a command line that is wrong, or asks for the help or the version. done is false for any other.
func answer(
	command string, err error, showVersion bool, usage string, stdout, stderr io.Writer,
) (code int, done bool) {
	switch {
	case errors.Is(err, pflag.ErrHelp):
		_, _ = fmt.Fprint(stdout, usage)
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "%s: %v\nRun %s --help for the flags.\n", command, err, command)
		return result.ExitConfig, true
	case showVersion:
		_, _ = fmt.Fprintf(stdout, "%s %s\n", program, version.String())
	default:
		return 0, false
	}
	return result.ExitPassed, true
}

// newLogger adds to an error what sets the level and the format.
func newLogger(level, format string, w io.Writer) (*zap.Logger, error) {
	log, err := logging.New(level, format, w)
	if err != nil {
		return nil, fmt.Errorf("%w (--log-level, --log-format, LOG_LEVEL, LOG_FORMAT)", err)
	}
	return log, nil
}
