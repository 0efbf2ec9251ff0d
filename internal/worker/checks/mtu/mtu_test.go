//go:build linux

package mtu_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/mtu"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

func run(settings *mtu.Settings, service string, timeout time.Duration) check.Finding {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	host, port, _ := net.SplitHostPort(service)
	return settings.New(environment.Pod{Resolver: &resolver.Resolver{}, ServiceHost: host, ServicePort: port})(ctx)
}

// serve accepts connections until the test ends.
func serve(t *testing.T, handle func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { handle(c.(*net.TCPConn)); _ = c.Close() }()
		}
	}()
	return l.Addr().String()
}

func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

func sink(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }

// silent reads nothing and keeps the connection: its kernel acknowledges all the same.
func silent(t *testing.T) func(*net.TCPConn) {
	return func(*net.TCPConn) { <-t.Context().Done() }
}

func reset(c *net.TCPConn) { _ = c.SetLinger(0) }

// small echoes small packets only, as a path back with a small MTU does.
func small(c *net.TCPConn) {
	buffer := make([]byte, 16_000)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			return
		}
		if n < 576 {
			_, _ = c.Write(buffer[:n])
		}
	}
}

func garble(c *net.TCPConn) {
	buffer := make([]byte, 16_000)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			return
		}
		if n > 576 {
			buffer[n/2]++
		}
		_, _ = c.Write(buffer[:n])
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	authority := tlstest.NewAuthority(t)
	tlsServer := tlstest.Serve(t, authority.Issue(t, tlstest.Certificate{}), http.NotFoundHandler()).Listener.Addr().String()
	for _, c := range []struct {
		name     string
		settings *mtu.Settings
		reason   check.Reason
		says     string
	}{
		{"the Kubernetes Service, over TLS", nil, check.NoReason, "16000 bytes reached"},
		{"TLS, a small hello", &mtu.Settings{PayloadBytes: new(int32(600))}, check.NoReason, "600 bytes reached"},
		{"TLS, a hello of an ordinary frame", &mtu.Settings{Address: tlsServer, Protocol: "tls", PayloadBytes: new(int32(1448))}, check.NoReason, "1448 bytes reached"},
		{"sink", &mtu.Settings{Address: serve(t, sink), PayloadBytes: new(int32(1448))}, check.NoReason, "1448 bytes reached"},
		{"a server that does not read", &mtu.Settings{Address: serve(t, silent(t)), PayloadBytes: new(int32(1448))}, check.NoReason, "1448 bytes reached"},
		{"echo", &mtu.Settings{Address: serve(t, echo), Protocol: "echo", PayloadBytes: new(int32(8948))}, check.NoReason, "8948 bytes reached"},
		{"an echo that is altered", &mtu.Settings{Address: serve(t, garble), Protocol: "echo", PayloadBytes: new(int32(1000))}, check.ReasonPayloadAltered, "other bytes"},
		{"no echo", &mtu.Settings{Address: serve(t, silent(t)), Protocol: "echo", PayloadBytes: new(int32(1000))}, check.ReasonTimeout, "sent 256 bytes to echo, did not answer in time"},
		{"large echoes vanish", &mtu.Settings{Address: serve(t, small), Protocol: "echo", PayloadBytes: new(int32(1000))}, check.ReasonPathMTUBlackHole, "are lost on the way back"},
		{"a TLS client's target that does not answer", &mtu.Settings{Address: serve(t, silent(t)), Protocol: "tls", PayloadBytes: new(int32(1000))}, check.ReasonTimeout, "acknowledged 1000 bytes"},
		{"a TLS client's target that resets", &mtu.Settings{Address: serve(t, reset), Protocol: "tls", PayloadBytes: new(int32(1000))}, check.ReasonConnectionReset, "reset"},
		{"reset", &mtu.Settings{Address: serve(t, reset), Protocol: "echo", PayloadBytes: new(int32(1000))}, check.ReasonConnectionReset, "reset"},
		{"nothing listens", &mtu.Settings{Address: "127.0.0.1:1"}, check.ReasonConnectionRefused, "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := run(c.settings, tlsServer, time.Second)
			if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %q: %q, want %q with %q", f.Reason, f.Message, c.reason, c.says)
			}
		})
	}
	if f := run(nil, "", time.Second); f.Reason != check.ReasonNoAddress {
		t.Errorf("outside a pod: got %+v", f)
	}
}

// TestASmallSegmentSize has the target advertise a small MSS, as one behind a smaller MTU does.
func TestASmallSegmentSize(t *testing.T) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 1300) })
	}}
	l, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	f := run(&mtu.Settings{Address: l.Addr().String(), PayloadBytes: new(int32(1448))}, "", time.Second)
	if f.Reason != check.ReasonPathMTUTooSmall || !strings.Contains(f.Message, "1448 bytes do not fit one segment") {
		t.Errorf("got %+v", f)
	}
}
