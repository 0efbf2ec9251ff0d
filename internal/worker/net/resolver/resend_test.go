package resolver_test

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// A server behind a line that loses the first packet of every question.
func TestALostQueryIsSentAgainWithinTheAttempt(t *testing.T) {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	asked := map[mdns.Question]int{}
	server := &mdns.Server{PacketConn: conn, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, query *mdns.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if asked[query.Question[0]]++; asked[query.Question[0]] == 1 {
			return
		}
		answer := new(mdns.Msg)
		answer.SetReply(query)
		_ = w.WriteMsg(answer)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })

	s := resolver.Server{Addr: netip.MustParseAddrPort(conn.LocalAddr().String()), Protocol: resolver.UDP, Timeout: 5 * time.Second, Attempts: 1}
	began := time.Now()
	_, tries, err := s.Exchange(context.Background(), "web.example.", mdns.TypeA)
	if err != nil || tries != 2 {
		t.Fatalf("one lost packet is taken for a failure, or not told: %d attempts, %v", tries, err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the query was sent again after %s", took)
	}
}
