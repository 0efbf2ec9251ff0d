package resolver_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

func of(servers ...netip.AddrPort) *resolver.Resolver {
	return &resolver.Resolver{Config: resolver.Config{Servers: servers, Ndots: 1, Timeout: 300 * time.Millisecond, Attempts: 2}}
}

var hosts = map[string][]string{"web.example.": {"A 127.0.0.1", "AAAA ::1"}}

func TestTheNextServerIsAsked(t *testing.T) {
	good := dnstest.Start(t, dnstest.Behaviour{Zone: hosts})
	for name, bad := range map[string]dnstest.Behaviour{
		"that drops":  {DropUDP: true},
		"that fails":  {Rcode: mdns.RcodeServerFailure},
		"that denies": {Rcode: mdns.RcodeRefused},
	} {
		addrs, _, err := of(dnstest.Start(t, bad), good).LookupAddrs(context.Background(), "web.example")
		if err != nil || len(addrs) != 2 {
			t.Errorf("after a server %s: got %v, %v", name, addrs, err)
		}
	}
	// A name that the first server knows not to exist is not asked for again.
	_, _, err := of(dnstest.Start(t, dnstest.Behaviour{}), good).LookupAddrs(context.Background(), "web.example")
	var host *resolver.HostError
	if !errors.As(err, &host) || host.Reason() != check.ReasonResolutionFailed || !strings.Contains(err.Error(), "web.example does not resolve") {
		t.Errorf("got %v", err)
	}
}

func TestAllFailuresAreTold(t *testing.T) {
	a := dnstest.Start(t, dnstest.Behaviour{DropUDP: true})
	b := dnstest.Start(t, dnstest.Behaviour{Rcode: mdns.RcodeServerFailure})
	_, _, err := of(a, b).LookupAddrs(context.Background(), "web.example")
	for _, says := range []string{a.String() + " over UDP", b.String() + " says SERVFAIL"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
	if _, _, err := of().LookupAddrs(context.Background(), "web.example"); err == nil || !strings.Contains(err.Error(), "names no server") {
		t.Errorf("got %v", err)
	}
	r := &resolver.Resolver{Err: errors.New("resolv.conf is gone")}
	if _, _, err := r.LookupAddrs(context.Background(), "web.example"); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("got %v", err)
	}
	if addrs, _, err := r.LookupAddrs(context.Background(), "::ffff:10.0.0.1"); err != nil || addrs[0].String() != "10.0.0.1" {
		t.Errorf("an address needs no server: got %v, %v", addrs, err)
	}
}

// Package net/http dials in goroutines of its own.
func TestAPanicWhileDialling(t *testing.T) {
	var none *resolver.Resolver
	client := http.Client{Transport: &http.Transport{DialContext: none.DialContext}}
	response, err := client.Get("http://web.example/")
	if err == nil {
		_ = response.Body.Close()
	}
	if reason, phrase := neterror.Of(err); reason != check.ReasonInternal || !strings.Contains(phrase, "internal error of the worker") {
		t.Errorf("got %s: %s", reason, phrase)
	}
}

func TestSearchDomainsThatFail(t *testing.T) {
	const broken, gone = "web.example.broken.example.", "gone.example.broken.example."
	r := of(dnstest.Start(t, dnstest.Behaviour{Zone: hosts, Rcodes: map[string]int{broken: mdns.RcodeServerFailure, gone: mdns.RcodeServerFailure}}))
	r.Config.Search, r.Config.Ndots = []string{"nothing.example", "broken.example", "empty.example"}, 5
	if addrs, _, err := r.LookupAddrs(context.Background(), "web.example"); err != nil || len(addrs) != 2 {
		t.Errorf("SERVFAIL on a search domain hides the answer: %v, %v", addrs, err)
	}
	// Where no name is answered, that a server is broken says more than that names do not exist.
	a, err := r.Config.Lookup(context.Background(), r.Config.Server(r.Config.Servers[0], resolver.UDP), "gone.example", mdns.TypeA)
	if err != nil || a.Rcode != mdns.RcodeServerFailure || a.Name != gone {
		t.Errorf("got %+v, %v", a, err)
	}
}

func TestCancellationEndsAQuery(t *testing.T) {
	r := of(dnstest.Start(t, dnstest.Behaviour{DropUDP: true}))
	r.Config.Timeout = time.Minute
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	start := time.Now()
	_, _, err := r.LookupAddrs(ctx, "web.example")
	var host *resolver.HostError
	if took := time.Since(start); took > 20*time.Second || !errors.As(err, &host) || host.Code != check.ReasonInterrupted {
		t.Errorf("after %s: %v", took, err)
	}
}

func TestAttemptsShareTheDeadline(t *testing.T) {
	t.Parallel()
	r := of(dnstest.Start(t, dnstest.Behaviour{Zone: hosts, DropFirst: 1}))
	r.Config.Timeout = time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := r.Query(ctx, "web.example.", mdns.TypeA); err != nil {
		t.Errorf("a lost packet was not made good: %v", err)
	}
}

func TestDialTakesTheAddressThatAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	// Nothing listens on ::1, and 192.0.2.1 (TEST-NET-1) swallows packets or has no route.
	r := of(dnstest.Start(t, dnstest.Behaviour{Zone: map[string][]string{"web.example.": {"A 192.0.2.1", "A 127.0.0.1", "AAAA ::1"}}}))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	start := time.Now()
	c, err := r.DialContext(ctx, "tcp", net.JoinHostPort("web.example", port))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %s", took)
	}
}

// A server behind a line that loses the first packet of every question.
func TestALostQueryIsSentAgainWithinTheAttempt(t *testing.T) {
	t.Parallel()
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
