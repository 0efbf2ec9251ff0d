package manager

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
)

// userAgent names us in the API server's audit log and metrics.
const userAgent = "kube-node-ready-controller"

// connect finds the API server and our own namespace in it.
func connect(cfg *config.Config, kubeconfig string) (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = orElse(kubeconfig, cfg.Kubernetes.KubeconfigPath)
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	rc, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("no way to the API server: set --kubeconfig, kubernetes.kubeconfigPath or KUBECONFIG, or run in a pod with a service account: %w", err)
	}
	rc.UserAgent = userAgent + "/" + version.Version
	rc.QPS, rc.Burst = cfg.Kubernetes.QPS, int(cfg.Kubernetes.Burst)
	if cfg.Kubernetes.QPS == 0 {
		rc.QPS = -1 // client-go's "no limit"; its 0 means 5
	}
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		// In a pod, the service account's; else the kubeconfig context's, else "default".
		if namespace, _, err = loader.Namespace(); err != nil {
			return nil, "", fmt.Errorf("find the controller's namespace: %w", err)
		}
	}
	return rc, namespace, nil
}

func orElse(s, fallback string) string {
	if s != "" {
		return s
	}
	return fallback
}
