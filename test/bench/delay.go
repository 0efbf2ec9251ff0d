//go:build bench

package main

import (
	"context"
	"net/http"
	"net/http/httputil"
	"time"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
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
