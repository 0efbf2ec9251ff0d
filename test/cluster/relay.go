package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

// Relay serves at an address, host:port, where clients take it for the API server: it has that one's certificate. It answers with what
// handler makes of forward, which passes a request on to the API server. The server's Addr is where it listens; Close ends it, and
// every connection.
func (c *Cluster) Relay(address string, handler func(forward *httputil.ReverseProxy) http.Handler) (*http.Server, error) {
	target, err := url.Parse(c.URL())
	if err != nil {
		return nil, err
	}
	certificate, err := tls.LoadX509KeyPair(c.path("pki", "apiserver.crt"), c.path("pki", "apiserver.key"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA())
	quiet := log.New(io.Discard, "", 0) // clients that go away are no error
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.FlushInterval = -1 // a watch's events come one by one
	forward.ErrorLog = quiet
	forward.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Addr: listener.Addr().String(), Handler: handler(forward), ReadHeaderTimeout: time.Minute, ErrorLog: quiet,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12},
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	return server, nil
}
