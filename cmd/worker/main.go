// Command kube-node-ready-worker verifies the node that it runs on: it performs the checks of
// its configuration, reports to standard output and the container's termination log, and
// exits with a code that says who is at fault (see internal/result). As "report" it turns an
// agent's health endpoint into a condition of the node instead (see internal/worker/reporter). As
// "daemonset", or under the name kube-node-ready, it does without a controller what one does for
// its node (see internal/daemonset).
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
	// A reader that is gone is no reason to die: writing fails, and the exit code still counts.
	// (Caught and not ignored, for what is ignored stays so in the commands of checks.)
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

// run is the program, without what belongs to the process. exit ends that where run cannot.
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
	switch {
	case errors.Is(err, pflag.ErrHelp):
		_, _ = fmt.Fprint(stdout, f.usage())
		return result.ExitPassed
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "%s: %v\nRun %s --help for the flags.\n", program, err, program)
		return result.ExitConfig
	case f.version:
		_, _ = fmt.Fprintf(stdout, "%s %s\n", program, version.String())
		return result.ExitPassed
	}
	dog := watch(getenv, f.dryRun || f.list, exit)
	defer dog.stop()
	return verifyNode(ctx, f, getenv, stdout, stderr, dog)
}
