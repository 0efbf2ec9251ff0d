// Command kube-node-ready-controller keeps workloads off each new node until a worker pod has verified its network.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/go-logr/zapr"
	"k8s.io/klog/v2"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/logging"
	"github.com/kube-node-ready/kube-node-ready/internal/manager"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
)

// gcPercent is Go's GOGC, in percent, unless the environment sets it. With Go's default of 100, a burst of nodes can
// double the memory that the caches hold. More frequent collections cost little in comparison.
const gcPercent = 50

// Exit codes.
const (
	exitError  = 1
	exitConfig = 2 // the configuration or the command line was refused
)

func main() {
	if len(os.Args) == 1 && os.Getenv("CHECK_ENDPOINT") != "" {
		err := becomeReporter()
		_, _ = fmt.Fprintf(os.Stderr,
			"kube-node-ready-controller: CHECK_ENDPOINT is set, so this program starts the reporter: %v\n", err)
		os.Exit(exitError)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// becomeReporter replaces this process by "kube-node-ready-worker report". Manifests of the SIG's reporter set an image
// and no command, and this program is the image's entry point. It returns only if the worker cannot be started.
func becomeReporter() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	worker := filepath.Join(filepath.Dir(self), "kube-node-ready-worker")
	err = syscall.Exec(worker, []string{worker, "report"}, os.Environ())
	return fmt.Errorf("cannot start %s: %w", worker, err)
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	say := func(w io.Writer, format string, a ...any) {
		_, _ = fmt.Fprintf(w, format+"\n", a...) // a closed terminal is not an error
	}
	flags := flag.NewFlagSet("kube-node-ready-controller", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", config.DefaultPath, "configuration `file`")
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig `file`; overrides kubernetes.kubeconfigPath")
	dryRun := flags.Bool("dry-run", false, "run workers and log the changes that would follow; change nothing on nodes")
	level := flags.String("log-level", "", "debug, info, warn or error; overrides logging.level")
	format := flags.String("log-format", "", "json or console; overrides logging.format")
	printConfig := flags.Bool("print-config", false,
		"print the configuration with all defaults, in the format of a configuration file, and exit")
	showVersion := flags.Bool("version", false, "print the version and exit")
	flags.Usage = func() {
		say(stderr, "Usage: kube-node-ready-controller [flags]\n\n"+
			"Keeps workloads off each new node until a worker pod has verified the node's network.\n\nFlags:")
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitConfig
	case flags.NArg() > 0:
		say(stderr, "kube-node-ready-controller: unexpected argument %q; it takes flags only", flags.Arg(0))
		return exitConfig
	case *showVersion:
		say(stdout, "kube-node-ready-controller %s", version.String())
		return 0
	}
	cfg, err := config.Load(*path)
	if err != nil {
		say(stderr, "%v", err)
		return exitConfig
	}
	cfg.Logging.Level = cmp.Or(*level, cfg.Logging.Level)
	cfg.Logging.Format = cmp.Or(*format, cfg.Logging.Format)
	zl, err := logging.New(cfg.Logging.Level, cfg.Logging.Format, stderr)
	if err != nil {
		say(stderr, "kube-node-ready-controller: %v", err)
		return exitConfig
	}
	if *printConfig {
		printed, err := cfg.Print()
		if err != nil {
			say(stderr, "kube-node-ready-controller: %v", err)
			return exitError
		}
		say(stdout, "%s", bytes.TrimSuffix(printed, []byte("\n")))
		return 0
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	defer func() { _ = zl.Sync() }() // stderr cannot always be synced
	log := zapr.NewLogger(zl)
	klog.SetLogger(log)
	if err := manager.Run(ctx, cfg, manager.Options{Kubeconfig: *kubeconfig, DryRun: *dryRun, Log: log}); err != nil {
		log.Error(err, "the controller stops because of an error")
		return exitError
	}
	return 0
}
