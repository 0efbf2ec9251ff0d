package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/run"
)

// The environment of a worker. The paths are for a worker that runs directly on a host; a pod uses the defaults.
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

// ErrInterrupted is the cause with which Run's context is cancelled when the worker is stopped.
var ErrInterrupted = run.ErrInterrupted

// exitMargin is the part of timeoutSeconds that is left for writing the report and exiting.
const exitMargin = time.Second

// Options of a verification.
type Options struct {
	Config Config
	// Getenv reads the environment.
	Getenv func(string) string
	// Only and Skip name the only checks to perform, and those to leave out.
	Only, Skip []string
	// DryRun outside a pod runs the checks that need no API server, and the other checks with Kubeconfig or with kubectl's
	// default kubeconfig.
	DryRun     bool
	Kubeconfig string
	// OnFinish, if set, is called with each check as it ends.
	OnFinish func(result.Check)
}

// In a dry run on a host, these replace what the kubelet sets in a pod.
const (
	dryRunNode        = "dry-run-node"
	dryRunServiceHost = dns.DefaultName + "." + resolver.DefaultClusterDomain
	dryRunServicePort = "443"
)

// Select reports for each check whether it is to be performed. The error names checks that do not exist.
func (o Options) Select(specs []checks.Spec) (map[string]bool, error) {
	selected := map[string]bool{}
	var names []string
	for _, s := range specs {
		selected[s.Name] = (len(o.Only) == 0 || slices.Contains(o.Only, s.Name)) && !slices.Contains(o.Skip, s.Name)
		names = append(names, s.Name)
	}
	for i, name := range slices.Concat(o.Only, o.Skip) {
		if !slices.Contains(names, name) {
			flag := "--only"
			if i >= len(o.Only) {
				flag = "--skip"
			}
			return nil, fmt.Errorf("%s %s: no check has this name; the checks are %s", flag, name, strings.Join(names, ", "))
		}
	}
	return selected, nil
}

// Run performs the checks and returns the report. It writes the report nowhere.
func Run(ctx context.Context, o Options) result.Report {
	start := time.Now()
	node := o.Getenv(EnvNodeName)
	specs := o.Config.Expand()
	selected, err := o.Select(specs)
	if err != nil {
		return Aborted(node, result.ConfigError, "configuration", err)
	}
	pod, apiErr := podFromEnv(o.Getenv)
	onHost := o.DryRun && errors.Is(apiErr, apiserver.ErrNoCluster)
	if onHost {
		apiErr = useHost(&pod, o.Getenv, o.Kubeconfig)
	}

	jobs := make([]run.Job, len(specs))
	for i, s := range specs {
		jobs[i].Spec = s
		switch noAPI := apiErr != nil && s.Settings().NeedsAPI(); {
		case !selected[s.Name]:
			jobs[i].Skip = check.Fail(check.ReasonNotSelected, "left out by --only or --skip")
		case noAPI && !o.DryRun:
			return Aborted(node, result.ClientError, "kubernetes-client", apiErr)
		case noAPI && errors.Is(apiErr, apiserver.ErrNoCluster):
			jobs[i].Skip = check.Fail(check.ReasonNeedsCluster, "needs a cluster, but this host is not in one")
		case noAPI:
			jobs[i].Skip = check.Fail(check.ReasonNeedsCluster, "needs a cluster, but cannot connect to it: %v", apiErr)
		default:
			jobs[i].Check = s.Settings().New(pod)
			if onHost {
				jobs[i].Check = withHostNote(jobs[i].Check)
			}
		}
	}
	timeout := time.Duration(o.Config.TimeoutSeconds) * time.Second
	timeout -= min(exitMargin, timeout/4) + time.Since(start)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	report := run.Run(ctx, jobs, o.OnFinish)
	report.Node = node
	return report
}

// podFromEnv reads a pod's environment and files. The error is why there is no API client.
func podFromEnv(getenv func(string) string) (environment.Pod, error) {
	config, err := resolver.Load(cmp.Or(getenv(EnvResolvConf), resolver.DefaultPath))
	hosts, _ := resolver.LoadHosts(resolver.DefaultHosts) // libc ignores a file that it cannot read too
	pod := environment.Pod{
		Resolver:    &resolver.Resolver{Config: config, Err: err, Hosts: hosts},
		Node:        getenv(EnvNodeName),
		Namespace:   getenv(EnvPodNamespace),
		ServiceHost: strings.Trim(getenv(EnvServiceHost), "[]"), // an IPv6 address may have brackets
		ServicePort: getenv(EnvServicePort),
	}
	dir := cmp.Or(getenv(EnvServiceAccountDir), apiserver.DefaultServiceAccountDir)
	pod.API, err = apiserver.New(pod.ServiceHost, pod.ServicePort, dir, pod.Resolver)
	return pod, err
}

// Client is the API client of a pod's environment and files. It makes no connection; the error names what is missing.
func Client(getenv func(string) string) (*apiserver.Client, error) {
	pod, err := podFromEnv(getenv)
	return pod.API, err
}

// DryRunClient is the API client of a dry run: the pod's; on a host that of the kubeconfig at path, or the one that
// kubectl would use. Without any of them the error is apiserver.ErrNoCluster.
func DryRunClient(getenv func(string) string, path string) (*apiserver.Client, error) {
	pod, err := podFromEnv(getenv)
	if errors.Is(err, apiserver.ErrNoCluster) {
		err = useHost(&pod, getenv, path)
	}
	return pod.API, err
}

// useHost replaces what the kubelet would have set in a pod. The error is why there is no API client.
func useHost(pod *environment.Pod, getenv func(string) string, path string) error {
	pod.Node = cmp.Or(pod.Node, dryRunNode)
	pod.ServiceHost, pod.ServicePort = dryRunServiceHost, dryRunServicePort
	var candidates []string
	switch list, home := getenv(EnvKubeconfig), getenv("HOME"); {
	case path != "":
		candidates = []string{path}
	case list != "":
		candidates = filepath.SplitList(list)
	case home != "":
		candidates = []string{filepath.Join(home, ".kube", "config")}
	}
	for _, candidate := range candidates {
		if _, err := os.Stat(candidate); err != nil && path == "" {
			continue // as kubectl does
		}
		api, err := apiserver.FromKubeconfig(candidate, pod.Resolver)
		if err != nil {
			return fmt.Errorf("the kubeconfig cannot be used: %w", err)
		}
		pod.API, pod.ServiceHost, pod.ServicePort = api, api.Host, api.Port
		return nil
	}
	return apiserver.ErrNoCluster
}

// withHostNote adds to a failure that the check ran on a host.
func withHostNote(try check.Func) check.Func {
	return func(ctx context.Context) check.Finding {
		f := try(ctx)
		if !f.Passed() {
			f.Message += "; this is a dry run outside a cluster"
		}
		return f
	}
}

// Aborted is the report of a worker that could not perform its checks. The cause is reported like a failed check, named
// what, so that readers of reports find it among the failures.
func Aborted(node string, outcome result.Outcome, what string, err error) result.Report {
	reason := check.ReasonInternal
	switch outcome {
	case result.ConfigError:
		reason = check.ReasonConfiguration
	case result.ClientError:
		reason = check.ReasonClientSetup
	}
	return result.Report{Version: result.Version, Node: node, Outcome: outcome, Checks: []result.Check{{
		Name: what, Type: "worker", Severity: checks.Required, Outcome: result.Failed,
		Reason: reason.String(), Message: result.Sanitise(err.Error()),
	}}}
}
