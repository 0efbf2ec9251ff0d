package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/run"
)

// The environment of a worker. The paths are for hosts where a worker runs without a mount
// namespace of its own; in a pod they keep their defaults.
const (
	EnvNodeName          = "NODE_NAME"
	EnvPodNamespace      = "POD_NAMESPACE"
	EnvServiceHost       = "KUBERNETES_SERVICE_HOST"
	EnvServicePort       = "KUBERNETES_SERVICE_PORT"
	EnvServiceAccountDir = "KUBE_NODE_READY_SERVICEACCOUNT_DIR" // default apiserver.DefaultServiceAccountDir
	EnvResolvConf        = "KUBE_NODE_READY_RESOLV_CONF"        // default resolver.DefaultPath
	EnvTerminationLog    = "KUBE_NODE_READY_TERMINATION_LOG"    // default report.DefaultTerminationLog
	EnvKubeconfig        = "KUBECONFIG"                         // of a dry run; default ~/.kube/config
)

// ErrInterrupted is the cause with which Run's context is cancelled when the worker is told to stop.
var ErrInterrupted = run.ErrInterrupted

// exitMargin is what is kept of timeoutSeconds for writing the report and exiting.
const exitMargin = time.Second

// Options of a verification.
type Options struct {
	// Config is what to check, and for how long.
	Config Config
	// Getenv reads the environment.
	Getenv func(string) string
	// Only and Skip name checks to be performed alone, or left out.
	Only, Skip []string
	// DryRun performs, on a host that is no pod, what needs no API server, and the rest with a
	// kubeconfig: Kubeconfig, else the one that kubectl would use.
	DryRun     bool
	Kubeconfig string
	// OnFinish, if set, is called with each check as it ends.
	OnFinish func(result.Check)
}

// Select reports which of the checks are to be performed; the error names checks that do not exist.
func (o Options) Select(specs []checks.Spec) (map[string]bool, error) {
	known := map[string]bool{}
	var names []string
	for _, s := range specs {
		known[s.Name] = len(o.Only) == 0 || slices.Contains(o.Only, s.Name)
		names = append(names, s.Name)
	}
	for _, given := range []struct {
		flag  string
		names []string
	}{{"--only", o.Only}, {"--skip", o.Skip}} {
		for _, name := range given.names {
			if _, ok := known[name]; !ok {
				return nil, fmt.Errorf("%s %s: there is no check of this name; there are %s", given.flag, name, strings.Join(names, ", "))
			}
		}
	}
	for _, name := range o.Skip {
		known[name] = false
	}
	return known, nil
}

// Run performs the checks and reports. It does not write the report anywhere.
func Run(ctx context.Context, o Options) result.Report {
	start := time.Now()
	node := o.Getenv(EnvNodeName)
	specs := o.Config.Expand()
	selected, err := o.Select(specs)
	if err != nil {
		return Aborted(node, result.ConfigError, "configuration", err)
	}
	x, apiErr := surroundings(o.Getenv)
	outside := o.DryRun && errors.Is(apiErr, apiserver.ErrNoCluster)
	if outside {
		apiErr = x.outside(o.Getenv, o.Kubeconfig)
	}

	jobs := make([]run.Job, len(specs))
	for i, s := range specs {
		jobs[i].Spec = s
		switch {
		case !selected[s.Name]:
			jobs[i].Skip = check.Fail(check.ReasonNotSelected, "left out by --only or --skip")
		case o.DryRun && apiErr != nil && s.Settings().NeedsAPI():
			jobs[i].Skip = needsCluster(apiErr)
		case apiErr != nil && s.Settings().NeedsAPI():
			return Aborted(node, result.ClientError, "kubernetes-client", apiErr)
		default:
			jobs[i].Check = s.Settings().New(x.Pod)
			if outside {
				jobs[i].Check = asAHost(jobs[i].Check)
			}
		}
	}
	timeout := time.Duration(o.Config.TimeoutSeconds) * time.Second
	timeout -= min(exitMargin, timeout/4) + time.Since(start)
	return run.Run(ctx, jobs, run.Options{Node: node, Timeout: timeout, OnFinish: o.OnFinish})
}

// place is where a worker finds itself.
type place struct{ environment.Pod }

// needsCluster is why a dry run leaves a check out.
func needsCluster(err error) check.Finding {
	if errors.Is(err, apiserver.ErrNoCluster) {
		return check.Fail(check.ReasonNeedsCluster, "needs a cluster, and there is none here")
	}
	return check.Fail(check.ReasonNeedsCluster, "needs a cluster, and cannot talk to the one here: %v", err)
}

// surroundings are read from the pod's environment and files.
func surroundings(getenv func(string) string) (place, error) {
	config, err := resolver.Load(or(getenv(EnvResolvConf), resolver.DefaultPath))
	hosts, _ := resolver.LoadHosts(resolver.DefaultHosts) // what cannot be read names nobody, as for libc
	x := place{environment.Pod{
		Resolver:    &resolver.Resolver{Config: config, Err: err, Hosts: hosts},
		Node:        getenv(EnvNodeName),
		Namespace:   getenv(EnvPodNamespace),
		ServiceHost: strings.Trim(getenv(EnvServiceHost), "[]"), // an IPv6 address in brackets is taken as well
		ServicePort: getenv(EnvServicePort),
	}}
	x.API, err = apiserver.New(x.ServiceHost, x.ServicePort, or(getenv(EnvServiceAccountDir), apiserver.DefaultServiceAccountDir), x.Resolver)
	return x, err
}

// Client is the API client of a pod's environment and files. The error says what is missing; no connection is made.
func Client(getenv func(string) string) (*apiserver.Client, error) {
	x, err := surroundings(getenv)
	return x.API, err
}

// Aborted is the report of a worker that could not perform its checks: why takes the place of a
// check, so that whoever reads reports finds it where failures are.
func Aborted(node string, outcome result.Outcome, what string, err error) result.Report {
	reason := map[result.Outcome]check.Reason{
		result.ConfigError: check.ReasonConfiguration,
		result.ClientError: check.ReasonClientSetup,
	}[outcome]
	if reason == check.NoReason {
		reason = check.ReasonInternal
	}
	return result.Report{Version: result.Version, Node: node, Outcome: outcome, Checks: []result.Check{{
		Name: what, Type: "worker", Severity: string(checks.Required), Outcome: result.Failed,
		Reason: reason.String(), Message: result.Sanitise(err.Error()),
	}}}
}

func or(value, otherwise string) string {
	if value != "" {
		return value
	}
	return otherwise
}
