//go:build e2e

package e2e

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
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

// skew is above what the check allows (5 s) and below what breaks certificates and tokens.
const skew = 90 * time.Second

// A node's clock is wrong. Linux has one wall clock for all its namespaces, so it is the API
// server's that is moved, for this node alone: its connections go to a relay which shows the
// API server's own certificate and changes the Date of the answers, and nothing else.
func (s *suite) clockSkewed(ctx context.Context, t *testing.T) {
	cert, key, err := s.cluster.ControlPlane.ServingCertificate()
	must(t, err)
	certificate, err := tls.X509KeyPair(cert, key)
	must(t, err)
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(s.cluster.ControlPlane.CA())
	target, err := url.Parse(s.cluster.ControlPlane.URL())
	must(t, err)
	relay := httputil.NewSingleHostReverseProxy(target)
	relay.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}}
	relay.ModifyResponse = func(response *http.Response) error {
		date, err := http.ParseTime(response.Header.Get("Date"))
		if err == nil {
			response.Header.Set("Date", date.Add(skew).Format(http.TimeFormat))
		}
		return err
	}
	listener, err := tls.Listen("tcp", net.JoinHostPort(realnode.HostAddress, "0"),
		&tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12})
	must(t, err)
	server := &http.Server{
		Handler: relay, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0), // a check that only connects is no error
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })

	fault, err := s.node("node-b").Redirect(ctx, s.cluster.ControlPlane.ServiceIP(1), "443", listener.Addr().String())
	s.broken(ctx, t, fault, err, "clock", []string{"clock"})
}
