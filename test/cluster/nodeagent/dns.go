package nodeagent

import (
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// DNSMode is how a node's resolver behaves.
type DNSMode int

const (
	// DNSWorks passes queries to the cluster's DNS server.
	DNSWorks DNSMode = iota
	// DNSDrops answers nothing: queries vanish and TCP connections stay silent.
	DNSDrops
	// DNSRefuses answers REFUSED to every query.
	DNSRefuses
)

// patience bounds the wait for the DNS server's answer.
const patience = 10 * time.Second

// resolver is a node's way to the cluster's DNS server: a relay on a loopback port of its own, so that the path from
// one node can break while the server is fine.
type resolver struct {
	upstream string
	mode     atomic.Int32
	port     int
	servers  []*dns.Server
}

func newResolver(upstream string, mode DNSMode) (*resolver, error) {
	r := &resolver{upstream: upstream}
	r.mode.Store(int32(mode)) //nolint:gosec // one of three
	var last error
	for range 10 { // another process may take the port between its choice and its use
		ports, err := cluster.FreePorts(address, 1)
		if err != nil {
			return nil, err
		}
		at := net.JoinHostPort(address, strconv.Itoa(ports[0]))
		udp, err := net.ListenPacket("udp", at)
		if err != nil {
			last = err
			continue
		}
		tcp, err := net.Listen("tcp", at)
		if err != nil {
			_ = udp.Close()
			last = err
			continue
		}
		r.port, r.servers = ports[0], []*dns.Server{{PacketConn: udp, Handler: r}, {Listener: tcp, Handler: r}}
		for _, s := range r.servers {
			go func() { _ = s.ActivateAndServe() }()
		}
		return r, nil
	}
	return nil, fmt.Errorf("open a node's resolver: %w", last)
}

// close ends the relay by its sockets: Shutdown would fail for a server that has not come to serve yet.
func (r *resolver) close() {
	for _, s := range r.servers {
		if s.PacketConn != nil {
			_ = s.PacketConn.Close()
		} else {
			_ = s.Listener.Close()
		}
	}
}

// nameserver is the relay's address as resolv.conf is to have it.
func (r *resolver) nameserver() string { return fmt.Sprintf("[%s]:%d", address, r.port) }

// ServeDNS answers a query, or not.
func (r *resolver) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	rcode := dns.RcodeServerFailure
	switch DNSMode(r.mode.Load()) {
	case DNSDrops:
		return
	case DNSRefuses:
		rcode = dns.RcodeRefused
	case DNSWorks:
		upstream := dns.Client{Net: w.RemoteAddr().Network(), Timeout: patience}
		if answer, _, err := upstream.Exchange(query, r.upstream); err == nil {
			_ = w.WriteMsg(answer)
			return
		}
	}
	_ = w.WriteMsg(new(dns.Msg).SetRcode(query, rcode))
}
