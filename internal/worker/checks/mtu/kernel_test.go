//go:build linux

package mtu

import (
	"net"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
)

// A kernel that does not fill TCP_INFO, such as gVisor's, shows nothing about the path.
func TestPayloadOfAConnection(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings Settings
		state    state
		size     int
		reason   check.Reason
		says     string
	}{
		{"one segment", Settings{Protocol: ProtocolRaw}, state{mss: 1448, acked: 1}, 1448, check.NoReason, ""},
		{"a configured size", Settings{PayloadBytes: new(int32(700))}, state{mss: 1448, acked: 1}, 700, check.NoReason, ""},
		{"no segment size", Settings{}, state{}, 0, check.ReasonUnknown, "does not show"},
		{"no segment size, TLS", Settings{Protocol: ProtocolTLS}, state{acked: 1}, 0, check.ReasonUnknown, "does not show"},
		{"no segment size, and a configured one", Settings{PayloadBytes: new(int32(700))}, state{}, 0, check.ReasonUnknown, "does not show"},
		{"nothing is counted", Settings{}, state{mss: 1448}, 0, check.ReasonUnknown, "does not show"},
		{"a segment smaller than a ClientHello", Settings{Protocol: ProtocolTLS}, state{mss: 76, acked: 1}, 0, check.ReasonUnknown, "use protocol raw"},
		{"a segment of a byte", Settings{Protocol: ProtocolEcho}, state{mss: 1, acked: 1}, 1, check.NoReason, ""},
		{"too large", Settings{PayloadBytes: new(int32(1449))}, state{mss: 1448, acked: 1}, 0, check.ReasonPathMTUTooSmall, "at most 1448"},
	} {
		payload, f := path{Settings: c.settings}.payload("10.0.0.1", c.state)
		if f == nil {
			f = &check.Finding{}
		}
		if f.Reason != c.reason || !strings.Contains(f.Message, c.says) || len(payload) != c.size {
			t.Errorf("%s: got %d bytes, %q: %s", c.name, len(payload), f.Reason, f.Message)
		}
		if c.reason == check.ReasonUnknown && f.Outcome != check.Inconclusive {
			t.Errorf("%s: got outcome %d", c.name, f.Outcome)
		}
	}
}

// A kernel that cannot set the don't-fragment bit shows nothing about the path either.
func TestAKernelWithoutTheOption(t *testing.T) {
	l, err := net.Listen("unix", t.TempDir()+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	raw, err := l.(*net.UnixListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"tcp4", "tcp6"} {
		err := forbidFragments(network, "", raw)
		if f := neterror.Finding("10.0.0.1:80", err); f.Outcome != check.Inconclusive || !strings.Contains(f.Message, "don't-fragment bit") {
			t.Errorf("%s: got %q: %s", network, f.Reason, f.Message)
		}
	}
}
