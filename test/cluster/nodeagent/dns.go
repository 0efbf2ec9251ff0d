package nodeagent

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// DNSMode is how a node's resolver behaves.
type DNSMode int32

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

// resolver is a node's path to the cluster's DNS server. It is a relay on its own loopback port, so that the path from
// one node can break while the server works.
type resolver struct {
	upstream string
	mode     atomic.Int32
	udp      net.PacketConn
	tcp      net.Listener
}

func newResolver(upstream string, mode DNSMode) (*resolver, error) {
	r := &resolver{upstream: upstream}
	r.mode.Store(int32(mode))
	var err error
	for range 20 { // a port that is free for UDP may be taken for TCP
		if r.udp, err = net.ListenPacket("udp", net.JoinHostPort(address, "0")); err != nil {
			break
		}
		if r.tcp, err = net.Listen("tcp", r.udp.LocalAddr().String()); err != nil {
			_ = r.udp.Close()
			continue
		}
		go func() { _ = (&dns.Server{PacketConn: r.udp, Handler: r}).ActivateAndServe() }()
		go func() { _ = (&dns.Server{Listener: r.tcp, Handler: r}).ActivateAndServe() }()
		return r, nil
	}
	return nil, fmt.Errorf("open a node's resolver: %w", err)
}

// close ends the relay by its sockets: a server's Shutdown fails before it has come to serve.
func (r *resolver) close() {
	_ = r.udp.Close()
	_ = r.tcp.Close()
}

// nameserver is the relay's address as resolv.conf is to have it.
func (r *resolver) nameserver() string {
	return fmt.Sprintf("[%s]:%d", address, r.udp.LocalAddr().(*net.UDPAddr).Port)
}

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
