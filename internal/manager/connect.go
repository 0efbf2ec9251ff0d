package manager

import (
	"cmp"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/leader"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
)

// userAgent names us in the API server's audit log and metrics.
const userAgent = "kube-node-ready-controller"

// connect finds the API server and our own namespace in it.
func connect(cfg *config.Config, kubeconfig string) (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = cmp.Or(kubeconfig, cfg.Kubernetes.KubeconfigPath)
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	rc, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("no API server is configured: set --kubeconfig, kubernetes.kubeconfigPath "+
			"or KUBECONFIG, or run in a pod with a service account: %w", err)
	}
	rc.UserAgent = userAgent + "/" + version.Version
	rc.QPS, rc.Burst = cfg.Kubernetes.QPS, int(cfg.Kubernetes.Burst)
	if cfg.Kubernetes.QPS == 0 {
		rc.QPS = -1 // client-go's "no limit"; its 0 means 5
	}
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		// In a pod, this is the service account's namespace. Otherwise it is that of the kubeconfig context, or "default".
		if namespace, _, err = loader.Namespace(); err != nil {
			return nil, "", fmt.Errorf("find the controller's namespace: %w", err)
		}
	}
	return rc, namespace, nil
}

// elect creates the fenced lock of the election, or nil without leader election.
func elect(cfg *config.Config, rc *rest.Config, namespace string) (*leader.Fence, error) {
	if !*cfg.LeaderElection.Enabled {
		return nil, nil
	}
	return leader.New(rc, cmp.Or(cfg.LeaderElection.Namespace, namespace), cfg.LeaderElection.ID, nil)
}

// fenced makes the manager use the fence's lock for its election, with the times that the fence expects.
func fenced(o *ctrl.Options, cfg *config.Config, f *leader.Fence) {
	o.LeaderElection = true
	o.LeaderElectionID = cfg.LeaderElection.ID
	o.LeaderElectionResourceLockInterface = f
	o.LeaderElectionReleaseOnCancel = true
	o.LeaseDuration, o.RenewDeadline = ptr.To(leader.LeaseDuration), ptr.To(leader.RenewDeadline)
	o.RetryPeriod = ptr.To(leader.RetryPeriod)
}
