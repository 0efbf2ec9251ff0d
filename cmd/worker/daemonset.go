package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"go.uber.org/zap"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/daemonset"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
)

const (
	commandDaemonSet = "daemonset"
	// nameOfDaemonSet is the program name that selects commandDaemonSet.
	nameOfDaemonSet = "kube-node-ready"
)

const daemonSetUsage = `Verifies the node of a DaemonSet's pod until the node passes, and then releases the node.

Usage:
  ` + program + ` daemonset [flags]
  ` + nameOfDaemonSet + ` [flags]

Environment:
  NODE_NAME                   name of the Node; required, except with --dry-run
  POD_NAMESPACE, KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT, LOG_LEVEL, LOG_FORMAT

A dry run exits with 0 if every required check passed, and otherwise with the exit code of "` + program + ` verify".
In a pod, it does not exit until it is stopped. Every run exits with 2 if its configuration is invalid.

Flags:
`

// parseDaemonSet parses the command line of the DaemonSet's process.
func parseDaemonSet(args []string, getenv func(string) string) (*flags, error) {
	f := newFlags(commandDaemonSet)
	f.set.StringVar(&f.config, "config", "", "the controller's configuration `file`; default "+config.DefaultPath+
		"; a dry run without that file uses the default settings")
	f.set.BoolVar(&f.dryRun, "dry-run", false, "run the checks once and log the changes that would follow; outside a "+
		"cluster, checks that use the API server need a kubeconfig")
	f.set.StringVar(&f.kubeconfig, "kubeconfig", "", kubeconfigHelp)
	f.addCommon(getenv("LOG_LEVEL"), "; overrides logging.level", getenv("LOG_FORMAT"), "; overrides logging.format")
	if err := f.set.Parse(args); err != nil {
		return f, err
	}
	switch {
	case f.set.NArg() > 0:
		return f, fmt.Errorf("unexpected argument %q", f.set.Arg(0))
	case f.kubeconfig != "" && !f.dryRun:
		return f, errors.New("--kubeconfig needs --dry-run: without --dry-run, the program uses the service account of " +
			"its pod")
	case getenv(worker.EnvNodeName) == "" && !f.dryRun && !f.version:
		return f, errors.New("NODE_NAME is not set: set it in the pod from the field spec.nodeName")
	}
	return f, nil
}

// loadDaemonSet reads the configuration of the DaemonSet's process.
func loadDaemonSet(f *flags) (*config.Config, error) {
	cfg, err := config.LoadDaemonSet(cmp.Or(f.config, config.DefaultPath))
	if errors.Is(err, fs.ErrNotExist) && f.config == "" && f.dryRun {
		cfg, err = config.ParseDaemonSet(nil, "defaults")
	}
	if err != nil {
		return nil, err
	}
	cfg.Logging.Level = cmp.Or(f.logLevel, cfg.Logging.Level)
	cfg.Logging.Format = cmp.Or(f.logFormat, cfg.Logging.Format)
	return cfg, nil
}

// verifyOwnNode runs the DaemonSet's process and returns the exit code.
func verifyOwnNode(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	f, err := parseDaemonSet(args, getenv)
	usage := daemonSetUsage + f.set.FlagUsages()
	if code, done := answer(program+" daemonset", err, f.version, usage, stdout, stderr); done {
		return code
	}
	cfg, err := loadDaemonSet(f)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return result.ExitConfig
	}
	log, err := newLogger(cfg.Logging.Level, cfg.Logging.Format, stderr)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "%s daemonset: %v\n", program, err)
		return result.ExitConfig
	}
	node := getenv(worker.EnvNodeName)
	if node == "" { // in a dry run
		node, _ = os.Hostname() // often the node's name
	}
	log = log.With(zap.String("node", node))
	p := &daemonset.Process{Config: cfg, Node: node, Log: log,
		Metrics: daemonset.NewMetrics(node, cfg.Reconciliation.Interval()),
		Connect: func() (daemonset.API, error) { return worker.Client(getenv) },
		Verify: func(ctx context.Context, c worker.Config) result.Report {
			return worker.Run(ctx, worker.Options{Config: c, Getenv: getenv, DryRun: f.dryRun, Kubeconfig: f.kubeconfig,
				OnFinish: logCheck(log)})
		}}
	if f.dryRun {
		return dryRun(ctx, f.kubeconfig, p, getenv)
	}
	if _, err := worker.Client(getenv); err != nil { // waiting would not help
		log.Error("cannot use the API server to read and write the node", zap.Error(err))
		return result.ExitClient
	}
	serve(p)
	log.Info("verifying this node", zap.String("version", version.Version))
	if err := p.Run(ctx); err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return result.ExitConfig
	}
	return result.ExitPassed
}

// dryRun runs the checks once. In a pod it then waits until it is stopped, since the kubelet would restart it.
func dryRun(ctx context.Context, kubeconfig string, p *daemonset.Process, getenv func(string) string) int {
	inPod := getenv(worker.EnvServiceHost) != ""
	switch api, err := worker.DryRunClient(getenv, kubeconfig); {
	case errors.Is(err, apiserver.ErrNoCluster):
		p.Log.Info("dry run outside a cluster: only the checks that need no API server run")
		p.Connect = nil
	case err != nil:
		p.Log.Warn("dry run: cannot use the cluster; only the checks that need no API server run", zap.Error(err))
		p.Connect = nil
	default:
		p.Connect = func() (daemonset.API, error) { return api, nil }
	}
	if inPod {
		serve(p)
	}
	report, err := p.DryRun(ctx)
	if err != nil {
		p.Log.Error("cannot use the configuration", zap.Error(err))
		return result.ExitConfig
	}
	if inPod {
		<-ctx.Done()
		return result.ExitPassed
	}
	return report.ExitCode()
}

// serve serves metrics and health. A port in use does not prevent the verification.
func serve(p *daemonset.Process) {
	cfg := p.Config
	ports := []int32{cfg.Health.Port}
	if *cfg.Metrics.Enabled {
		ports = append(ports, cfg.Metrics.Port)
	}
	for _, port := range ports {
		log := p.Log.With(zap.Int32("port", port))
		serve, err := p.Metrics.Listen(fmt.Sprintf(":%d", port))
		if err != nil {
			log.Error("cannot listen on the port; set metrics.port or health.port to a free port", zap.Error(err))
			continue
		}
		recovery.Go(serve, func(caught *recovery.Panic) {
			log.Error("the server on this port stopped because of an error", zap.Error(caught))
		})
	}
}
