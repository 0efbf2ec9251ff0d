package checks_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	httpcheck "github.com/kube-node-ready/kube-node-ready/internal/worker/checks/http"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/kubernetesapi"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/servicediscovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/apitest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// connections serves each connection until the test ends, and counts them.
func connections(t *testing.T, serve func(net.Conn)) (address string, count *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	count = new(atomic.Int32)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			go func() {
				defer func() { _ = c.Close() }()
				serve(c)
			}()
		}
	}()
	return l.Addr().String(), count
}

// sends answers the first bytes of a client with others, and reads on until the client ends.
func sends(answer string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1<<14))
		_, _ = io.WriteString(c, answer)
		_, _ = io.Copy(io.Discard, c)
	}
}

// overTLS does the same behind a TLS handshake.
func overTLS(config *tls.Config, serve func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		secure := tls.Server(c, config)
		if secure.Handshake() == nil {
			serve(secure)
			_ = secure.Close()
		}
	}
}

// speaks answers each request with bytes.
func speaks(answer string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, answer)
		}
	}
}

// fault is what a server does wrong, and what the checks say of it.
type fault struct {
	name   string
	serve  func(net.Conn)
	reason check.Reason
	says   string
}

// answersOK is the answer of a server without a fault.
const answersOK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"

// faults are those of TLS and of HTTP that repeating does not cure.
func faults(t *testing.T, authority *tlstest.Authority) []fault {
	t.Helper()
	good := authority.Issue(t, tlstest.Certificate{})
	with := func(c tls.Certificate, change func(*tls.Config)) *tls.Config {
		config := &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS12}
		if change != nil {
			change(config)
		}
		return config
	}
	trailing := good
	trailing.Certificate = [][]byte{append(bytes.Clone(good.Certificate[0]), 0)}
	alert := func(code string) func(net.Conn) { return sends("\x15\x03\x03\x00\x02\x02" + code) }
	plain := with(good, nil)
	return []fault{
		{"alert: handshake failure", alert("\x28"), check.ReasonTLSFailed, "handshake failure"},
		{"alert: internal error", alert("\x50"), check.ReasonTLSFailed, "internal error"},
		{"alert: protocol version", alert("\x46"), check.ReasonTLSFailed, "protocol version not supported"},
		{"a client certificate is required", overTLS(with(good, func(c *tls.Config) {
			c.ClientAuth = tls.RequireAnyClientCert
		}), speaks(answersOK)), check.ReasonTLSFailed, "certificate required"},
		{"a client certificate is required by TLS 1.2", overTLS(with(good, func(c *tls.Config) {
			c.ClientAuth, c.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12
		}), speaks(answersOK)), check.ReasonTLSFailed, "ended the TLS handshake"},
		{"TLS 1.1", overTLS(only11(good), speaks(answersOK)), check.ReasonTLSFailed, "it speaks only TLS 1.1"},
		{"a negative serial number", overTLS(with(authority.Negative(t, good), nil), speaks(answersOK)),
			check.ReasonTLSFailed, "Go cannot read its certificate: x509: negative serial number"},
		{"bytes after the certificate", overTLS(with(trailing, nil), speaks(answersOK)), check.ReasonTLSFailed,
			"Go cannot read its certificate: x509: trailing data"},
		{"no TLS", sends("HTTP/1.1 400 Bad Request\r\n\r\n"), check.ReasonTLSFailed, "plain HTTP"},
		{"no TLS and no HTTP", sends("SSH-2.0-OpenSSH_9.9\r\n"), check.ReasonTLSFailed, "does not speak TLS"},
		{"an impossible TLS record", sends("\x16\x03\x03\xff\xff\x02"), check.ReasonTLSFailed, "oversized record"},
		{"no HTTP", overTLS(plain, speaks("SSH-2.0-OpenSSH_9.9\r\n")), check.ReasonMalformedResponse, "SSH-2.0"},
		{"a header line without a colon", overTLS(plain, speaks("HTTP/1.1 200 OK\r\nwell\r\n\r\n")),
			check.ReasonMalformedResponse, "not HTTP: malformed MIME header"},
		{"an impossible length", overTLS(plain, speaks("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n")),
			check.ReasonMalformedResponse, "bad Content-Length"},
		{"a broken body", overTLS(plain, speaks("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n")),
			check.ReasonMalformedResponse, "chunk"},
	}
}

// TestFaultsThatRepeatingDoesNotCure checks that they have reasons of their own, and that the check ends with them. At
// most a second ClientHello, a small one, is sent for each request; serviceDiscovery sends two.
func TestFaultsThatRepeatingDoesNotCure(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	good := authority.Issue(t, tlstest.Certificate{})
	for _, c := range faults(t, authority) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			address, count := connections(t, c.serve)
			api := func() *apiserver.Client {
				client := apitest.Client(t, authority, good, http.NotFoundHandler())
				client.Port = port(address)
				return client
			}
			for name, settings := range map[string]checks.Settings{
				"http":             &httpcheck.Settings{URL: "https://" + address, CA: authority.PEM(), ExpectBody: "x"},
				"kubernetesAPI":    &kubernetesapi.Settings{Via: []string{kubernetesapi.ViaAddress}},
				"serviceDiscovery": &servicediscovery.Settings{},
			} {
				count.Store(0)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				began := time.Now()
				f := settings.New(environment.Pod{Resolver: &resolver.Resolver{}, API: api()})(ctx)
				cancel()
				if f.Outcome != check.Failed || f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
					t.Errorf("%s: got %+v", name, f)
				}
				if n, took := count.Load(), time.Since(began); n > 4 || took > 5*time.Second {
					t.Errorf("%s: %d connections in %s", name, n, took)
				}
			}
		})
	}
}

// only11 is a server that speaks only TLS 1.1, and selects it for any client, as those from before TLS 1.3 do.
func only11(c tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if slices.Contains(hello.SupportedVersions, tls.VersionTLS11) {
				return nil, nil
			}
			_, _ = io.WriteString(hello.Conn, serverHello11)
			_, err := io.Copy(io.Discard, hello.Conn)
			return nil, cmp.Or(err, io.EOF)
		}}
}

// serverHello11 is the ServerHello of a server that selects TLS 1.1.
const serverHello11 = "\x16\x03\x02\x00\x2a\x02\x00\x00\x26\x03\x02" +
	"0123456789abcdef0123456789abcdef" + "\x00\x00\x2f\x00"

// TestHTTP2IsBroken checks a server that offers HTTP/2 and answers in HTTP/1.1, and one whose bodies cannot be read.
func TestHTTP2IsBroken(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	config := &tls.Config{Certificates: []tls.Certificate{authority.Issue(t, tlstest.Certificate{})},
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	address, _ := connections(t, overTLS(config, sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")))
	gzip := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "this is not compressed")
	}))
	gzip.Config.ErrorLog = log.New(io.Discard, "", 0)
	gzip.Start()
	t.Cleanup(gzip.Close)
	for url, says := range map[string]string{"https://" + address: "broke the HTTP/2 protocol", gzip.URL: "gzip"} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		settings := &httpcheck.Settings{URL: url, CA: authority.PEM(), ExpectBody: "x"}
		f := settings.New(environment.Pod{Resolver: &resolver.Resolver{}})(ctx)
		cancel()
		if f.Outcome != check.Failed || f.Reason != check.ReasonMalformedResponse || !strings.Contains(f.Message, says) {
			t.Errorf("%s: got %+v", url, f)
		}
	}
}
