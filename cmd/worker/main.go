// Command kube-node-ready-worker verifies the node that it runs on: it performs the checks of
// its configuration, reports to standard output and the container's termination log, and
// exits with a code that says who is at fault (see internal/result).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/kube-node-ready/kube-node-ready/internal/check/guard"
	"github.com/kube-node-ready/kube-node-ready/internal/check/runner"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
)

const program = "kube-node-ready-worker"

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	guard.Go(func() {
		<-signals
		cancel(runner.ErrInterrupted)
	}, func(p *guard.Panic) { cancel(p) })
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is the program, without what belongs to the process.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	f, err := parseFlags(args, getenv, isTerminal(stdout))
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
	return verifyNode(ctx, f, getenv, stdout, stderr)
}
