package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// delay serves the API server once more, with every request that much slower, until ctx ends.
func delay(ctx context.Context, c *cluster.Cluster, by time.Duration) (string, error) {
	target, err := url.Parse(c.URL())
	if err != nil {
		return "", err
	}
	cert, key, err := c.ServingCertificate()
	if err != nil {
		return "", err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return "", err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA())
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1 // a watch's events come one by one
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Minute, ErrorLog: proxy.ErrorLog,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if pause(r.Context(), by) == nil {
				proxy.ServeHTTP(w, r)
			}
		}),
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return "https://" + listener.Addr().String(), nil
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
