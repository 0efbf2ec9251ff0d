package neterror

import (
	"context"
	"fmt"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// The stages of an HTTP request.
const (
	connecting int32 = iota
	handshaking
	waiting
)

// Progress is how far an HTTP request has come, for what a timeout means depends on it: a peer
// that cannot be connected to, a TLS handshake whose large packets are lost, or a server
// that is slow.
type Progress struct {
	started time.Time
	stage   atomic.Int32
}

// Watch returns a context for a request, and its progress.
func Watch(ctx context.Context) (context.Context, *Progress) {
	p := &Progress{started: time.Now()}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeStart: func() { p.stage.Store(handshaking) },
		GotConn:           func(httptrace.GotConnInfo) { p.stage.Store(waiting) },
	}), p
}

// Finding is the package's Finding, with what was being waited for when time ran out.
func (p *Progress) Finding(peer string, err error) check.Finding {
	f := Finding(peer, err)
	if f.Reason != check.ReasonTimeout {
		return f
	}
	took := time.Since(p.started).Round(time.Millisecond)
	switch p.stage.Load() {
	case connecting:
		f.Message = fmt.Sprintf("%s did not accept a connection within %s: packets are lost or dropped by a firewall", peer, took)
	case handshaking:
		f.Message = fmt.Sprintf("%s accepted a connection, but did not complete the TLS handshake within %s: large packets may be lost on the path (a check of type mtu tells)", peer, took)
	default:
		f.Message = fmt.Sprintf("%s took the request, but did not answer within %s", peer, took)
	}
	return f
}
