//go:build linux

package mtu_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/mtu"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// answers reads what comes, and then sends these bytes and nothing more.
func answers(t *testing.T, text string) string {
	return serve(t, func(c *net.TCPConn) {
		if _, err := c.Read(make([]byte, 16_000)); err == nil {
			_, _ = c.Write([]byte(text))
		}
		<-t.Context().Done()
	})
}

// tlsServer answers handshakes with these key exchanges.
func tlsServer(t *testing.T, curves ...tls.CurveID) string {
	s := tlstest.Serve(t, tlstest.NewAuthority(t).Issue(t, tlstest.Certificate{}), http.NotFoundHandler(), curves...)
	return s.Listener.Addr().String()
}

// Any byte that a server sends back shows that it has read the ClientHello, which is all that the check asks of it.
func TestAnyByteIsAnAnswer(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{
		"alert handshake_failure, fatal":    answers(t, "\x15\x03\x03\x00\x02\x02\x28"),
		"alert protocol_version, fatal":     answers(t, "\x15\x03\x01\x00\x02\x02\x46"),
		"alert unrecognized_name, warning":  answers(t, "\x15\x03\x03\x00\x02\x01\x70"),
		"plain HTTP":                        answers(t, "HTTP/1.1 400 Bad Request\r\n\r\n"),
		"half a TLS record":                 answers(t, "\x16\x03\x03"),
		"one byte":                          answers(t, "x"),
		"a TLS server with P-256 alone":     tlsServer(t, tls.CurveP256),
		"a TLS server with P-384 alone":     tlsServer(t, tls.CurveP384),
		"a TLS server with ML-KEM and P521": tlsServer(t, tls.X25519MLKEM768, tls.CurveP521),
	} {
		for _, size := range []*int32{nil, new(int32(600))} {
			f := run(&mtu.Settings{Address: address, Protocol: "tls", PayloadBytes: size}, "", time.Second)
			if f.Outcome != check.Passed || !strings.Contains(f.Message, "bytes reached "+address) {
				t.Errorf("%s: got %q: %s", name, f.Reason, f.Message)
			}
		}
	}
}

// A name is served by one of its addresses, as for any program that uses the name.
func TestOneAddressIsEnough(t *testing.T) {
	t.Parallel()
	four := serve(t, sink)
	six, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = six.Close() }()
	v4, v6, none := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.2")
	for _, c := range []struct {
		name    string
		serving string
		addrs   []netip.Addr
	}{
		{"only IPv6 of a dual-stack name", six.Addr().String(), []netip.Addr{none, v6}},
		{"only IPv4 of a dual-stack name", four, []netip.Addr{v6, v4}},
		{"the last of three", four, []netip.Addr{none, v6, v4}},
	} {
		_, port, _ := net.SplitHostPort(c.serving)
		r := &resolver.Resolver{Hosts: map[string][]netip.Addr{"web.example": c.addrs}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		f := (&mtu.Settings{Address: "web.example:" + port}).New(environment.Pod{Resolver: r})(ctx)
		cancel()
		if f.Outcome != check.Passed || !strings.Contains(f.Message, c.serving+" (web.example)") {
			t.Errorf("%s: got %q: %s", c.name, f.Reason, f.Message)
		}
	}
}

// In FIPS mode Go offers no X25519, and key shares are larger.
func TestInFIPSMode(t *testing.T) {
	const child = "MTU_TEST_TARGET"
	if address := os.Getenv(child); address != "" {
		for _, size := range []*int32{nil, new(int32(600))} {
			f := run(&mtu.Settings{Address: address, Protocol: "tls", PayloadBytes: size}, "", 10*time.Second)
			if f.Outcome != check.Passed {
				t.Errorf("got %q: %s", f.Reason, f.Message)
			}
		}
		return
	}
	for _, address := range []string{tlsServer(t), tlsServer(t, tls.CurveP256)} {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestInFIPSMode$")
		again.Env = append(os.Environ(), "GODEBUG=fips140=on", child+"="+address)
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}
