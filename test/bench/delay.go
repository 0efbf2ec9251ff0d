package main

import (
	"context"
	"net/http"
	"net/http/httputil"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// delay serves the API server once more, with every request that much slower, until ctx ends.
func delay(ctx context.Context, c *cluster.Cluster, by time.Duration) (string, error) {
	server, err := c.Relay("127.0.0.1:0", func(forward *httputil.ReverseProxy) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if pause(r.Context(), by) == nil {
				forward.ServeHTTP(w, r)
			}
		})
	})
	if err != nil {
		return "", err
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return "https://" + server.Addr, nil
}

// kubeconfigTo is the controller's service account at another address.
func (b *bed) kubeconfigTo(ctx context.Context, url string) (string, error) {
	path, err := b.cluster.KubeconfigFor(ctx, install.Namespace, install.ControllerAccount)
	if err != nil {
		return "", err
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return "", err
	}
	for _, c := range config.Clusters {
		c.Server = url
	}
	path = filepath.Join(b.dir, "slowed")
	return path, clientcmd.WriteToFile(*config, path)
}
