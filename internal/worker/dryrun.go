package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// What a dry run on a host that is no pod takes for what the kubelet would have set.
const (
	dryRunNode        = "dry-run-node"
	dryRunServiceHost = dns.DefaultName + "." + resolver.DefaultClusterDomain
	dryRunServicePort = "443"
)

// DryRunClient is the API client of a dry run: a pod's, else of a kubeconfig, path or else the one that kubectl would use. The error
// is apiserver.ErrNoCluster where there is neither.
func DryRunClient(getenv func(string) string, path string) (*apiserver.Client, error) {
	x, err := surroundings(getenv)
	if errors.Is(err, apiserver.ErrNoCluster) {
		err = x.outside(getenv, path)
	}
	return x.API, err
}

// outside makes a host's place out of a pod's. The error is why the API cannot be called.
func (x *place) outside(getenv func(string) string, path string) error {
	x.Node = or(x.Node, dryRunNode)
	x.ServiceHost, x.ServicePort = dryRunServiceHost, dryRunServicePort
	for _, candidate := range kubeconfigs(getenv, path) {
		if _, err := os.Stat(candidate); err != nil && path == "" {
			continue // kubectl passes over it as well
		}
		api, err := apiserver.FromKubeconfig(candidate, x.Resolver)
		if err != nil {
			return fmt.Errorf("the kubeconfig cannot be used: %w", err)
		}
		x.API, x.ServiceHost, x.ServicePort = api, api.Host, api.Port
		return nil
	}
	return apiserver.ErrNoCluster
}

func kubeconfigs(getenv func(string) string, path string) []string {
	if path != "" {
		return []string{path}
	}
	if list := getenv(EnvKubeconfig); list != "" {
		return filepath.SplitList(list)
	}
	if home := getenv("HOME"); home != "" {
		return []string{filepath.Join(home, ".kube", "config")}
	}
	return nil
}

// asAHost says of what did not pass where it was tried.
func asAHost(try check.Func) check.Func {
	return func(ctx context.Context) check.Finding {
		f := try(ctx)
		if !f.Passed() {
			f.Message += "; this is a dry run on a host that is no pod of a cluster"
		}
		return f
	}
}
