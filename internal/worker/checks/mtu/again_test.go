//go:build linux

package mtu_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/mtu"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// balancer accepts every connection, and leads all but the first so many to a server, as one with dead backends does.
func balancer(t *testing.T, dead int, server func(*net.TCPConn)) string {
	var accepted atomic.Int64
	return serve(t, func(c *net.TCPConn) {
		if int(accepted.Add(1)) <= dead {
			<-t.Context().Done()
			return
		}
		server(c)
	})
}

// A balancer accepts a connection, and its kernel acknowledges the payload, before the balancer finds that the backend
// is dead. Another connection leads to another backend.
func TestASilentConnectionIsTriedAgain(t *testing.T) {
	secure := tlstest.Serve(t, tlstest.NewAuthority(t).Issue(t, tlstest.Certificate{}), http.NotFoundHandler())
	backend := func(c *net.TCPConn) {
		behind, err := net.Dial("tcp", secure.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		go func() { _, _ = behind.(*net.TCPConn).ReadFrom(c); _ = behind.Close() }()
		_, _ = c.ReadFrom(behind)
	}
	const always = 1 << 20
	for _, c := range []struct {
		name     string
		settings mtu.Settings
		timeout  time.Duration
		outcome  check.Outcome
		says     string
	}{
		{"TLS, one dead backend", mtu.Settings{Protocol: "tls", Address: balancer(t, 1, backend)}, 2 * retry.Lost,
			check.Warned, "bytes reached"},
		{"TLS, two dead backends", mtu.Settings{Protocol: "tls", Address: balancer(t, 2, backend)}, 3 * retry.Lost,
			check.Warned, "answered at the 3rd of 3 attempts"},
		{"echo, one dead backend", mtu.Settings{Protocol: "echo", Address: balancer(t, 1, echo)}, 2 * retry.Lost,
			check.Warned, "answered at the 2nd of 2 attempts"},
		{"TLS, all dead", mtu.Settings{Protocol: "tls", Address: balancer(t, always, nil)}, retry.Lost + time.Second,
			check.Failed, "(path MTU 65535), but no server behind that address answered the ClientHello (asked 2 times"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
			defer cancel()
			ctx, record := retry.WithRecord(ctx)
			f := record.Describe(c.settings.New(environment.Pod{Resolver: &resolver.Resolver{}})(ctx))
			if f.Outcome != c.outcome || f.Reason != check.ReasonTimeout || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %d, %q: %s", f.Outcome, f.Reason, f.Message)
			}
		})
	}
}
