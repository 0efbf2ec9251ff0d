package resolver

import (
	"context"
	"net"
	"net/netip"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
)

// DialContext connects to host:port, resolving the host as a pod would. All addresses of a
// name are tried at the same time and the first connection wins, so that one that swallows
// packets costs no time. It has the form of net.Dialer's method.
func (r *Resolver) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = recovery.Try(func() error { // package net/http dials in goroutines of its own
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		addrs, err := r.LookupAddrs(ctx, host)
		if err != nil {
			return err
		}
		conn, err = DialAny(ctx, network, addrs, port)
		return err
	})
	return conn, err
}

// DialAny connects to whichever of the addresses answers first; the error is the last one.
func DialAny(ctx context.Context, network string, addrs []netip.Addr, port string) (net.Conn, error) {
	type attempt struct {
		conn net.Conn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	attempts := make(chan attempt, len(addrs))
	for _, a := range addrs {
		recovery.Go(func() {
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(a.String(), port))
			attempts <- attempt{conn, err}
		}, func(p *recovery.Panic) { attempts <- attempt{err: p} })
	}
	var last error
	for left := len(addrs); left > 0; left-- {
		a := <-attempts
		if a.err != nil {
			last = a.err
			continue
		}
		cancel()
		recovery.Go(func() {
			for range left - 1 {
				if late := <-attempts; late.err == nil {
					_ = late.conn.Close()
				}
			}
		}, func(*recovery.Panic) {}) // nobody waits for it
		return a.conn, nil
	}
	cancel()
	return nil, last
}
