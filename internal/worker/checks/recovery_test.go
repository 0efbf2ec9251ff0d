package checks_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	httpcheck "github.com/kube-node-ready/kube-node-ready/internal/worker/checks/http"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/kubernetesapi"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/peers"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/servicediscovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/tcp"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/run"
	"github.com/kube-node-ready/kube-node-ready/test/servers/apitest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// broken is how long the servers of these tests are so.
const broken = 3 * time.Second

// front accepts connections for a server, and treats those that come while it is broken in one of these ways.
const (
	refuses = "refuses" // nothing listens
	resets  = "resets"
	closes  = "closes"
	keeps   = "keeps" // and says nothing
)

// bind binds a TCP port. Until something listens, connections to it are refused, and nobody else gets it.
func bind(t *testing.T) (socket *os.File, address string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket = os.NewFile(uintptr(fd), "socket")
	t.Cleanup(func() { _ = socket.Close() })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return socket, fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
}

// listen listens on a socket that is bound.
func listen(socket *os.File) (net.Listener, error) {
	if err := syscall.Listen(int(socket.Fd()), 128); err != nil {
		return nil, err
	}
	return net.FileListener(socket)
}

// front returns the address of a server's front.
func front(t *testing.T, way, server string) string {
	t.Helper()
	socket, address := bind(t)
	until := time.Now().Add(broken)
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	serve := func() {
		l, err := listen(socket)
		if err != nil {
			t.Error(err)
			return
		}
		go func() { <-ended; _ = l.Close() }()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go treat(c, way, time.Now().Before(until), server, ended)
			}
		}()
	}
	if way == refuses {
		time.AfterFunc(broken, serve)
	} else {
		serve()
	}
	return address
}

func treat(c net.Conn, way string, isBroken bool, server string, ended <-chan struct{}) {
	defer func() { _ = c.Close() }()
	if isBroken && way == keeps {
		<-ended
	}
	if isBroken && way == resets {
		_ = c.(*net.TCPConn).SetLinger(0)
	}
	if isBroken {
		return
	}
	behind, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	go func() { <-ended; _ = c.Close(); _ = behind.Close() }()
	go func() { _, _ = behind.(*net.TCPConn).ReadFrom(c) }()
	_, _ = c.(*net.TCPConn).ReadFrom(behind)
	_ = behind.Close()
}

// nameServer answers with a response code while it is broken; -1 is silence, and -2 nobody who listens.
func nameServer(t *testing.T, rcode int) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, until := conn.LocalAddr().String(), time.Now().Add(broken)
	server := &mdns.Server{PacketConn: conn, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		answer := new(mdns.Msg)
		answer.SetReply(q)
		isBroken := time.Now().Before(until)
		switch {
		case isBroken && rcode < 0:
			return
		case isBroken:
			answer.Rcode = rcode
		case q.Question[0].Qtype == mdns.TypeA:
			header := mdns.RR_Header{Name: q.Question[0].Name, Rrtype: mdns.TypeA, Class: mdns.ClassINET, Ttl: 5}
			answer.Answer = []mdns.RR{&mdns.A{Hdr: header, A: net.IPv4(127, 0, 0, 1)}}
		}
		_ = w.WriteMsg(answer)
	})}
	t.Cleanup(func() { _ = server.Shutdown() })
	if rcode != -2 {
		go func() { _ = server.ActivateAndServe() }()
		return netip.MustParseAddrPort(address)
	}
	_ = conn.Close()
	// A connected socket keeps the port, and refuses what others than its peer send.
	kept, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)), &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(broken, func() {
		_ = kept.Close()
		if server.PacketConn, err = net.ListenPacket("udp4", address); err != nil {
			t.Error(err)
			return
		}
		_ = server.ActivateAndServe()
	})
	return netip.MustParseAddrPort(address)
}

func asking(servers ...netip.AddrPort) *resolver.Resolver {
	config := resolver.Config{Servers: servers, Ndots: 1, Timeout: 5 * time.Second, Attempts: 2}
	return &resolver.Resolver{Config: config}
}

// apiServer answers what the checks ask.
func apiServer(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, `{"status":{"userInfo":{"username":"worker"}}}`)
	case strings.HasSuffix(r.URL.Path, "/endpointslices"):
		_, _ = fmt.Fprint(w, `{"items":[{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}]}]}`)
	case strings.HasSuffix(r.URL.Path, "/services/kubernetes"):
		_, _ = fmt.Fprint(w, `{"spec":{"clusterIP":"127.0.0.1","clusterIPs":["127.0.0.1"]}}`)
	case strings.HasSuffix(r.URL.Path, "/pods"):
		_, _ = fmt.Fprint(w, `{"items":[{"metadata":{"name":"p","uid":"p"},"spec":{"nodeName":"other"},
			"status":{"podIP":"127.0.0.1","conditions":[{"type":"Ready","status":"True"}]}}]}`)
	}
}

// TestAFaultMustLast checks that a server fault of three seconds fails no node, because a check has ten seconds. The
// fault causes a warning if a program that asks only once would have failed.
func TestAFaultMustLast(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	site := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(site.Close)
	plain := site.Listener.Addr().String()
	good := nameServer(t, mdns.RcodeSuccess)

	var jobs []run.Job
	want := map[string]string{}
	add := func(name, reason string, settings checks.Settings, pod environment.Pod) {
		spec := checks.Spec{Name: name, TimeoutSeconds: new(int32(10))}
		jobs = append(jobs, run.Job{Spec: spec, Check: settings.New(pod)})
		want[name] = reason
	}
	named := &dns.Settings{Name: "web.example."}
	for rcode, reason := range map[int]string{
		mdns.RcodeServerFailure: "ServerFailure", mdns.RcodeRefused: "QueryRefused",
		-1: "QueryLost", -2: "ConnectionRefused",
	} {
		add("dns "+reason, reason, named, environment.Pod{Resolver: asking(nameServer(t, rcode))})
	}
	for _, rcode := range []int{mdns.RcodeServerFailure, -2} {
		add(fmt.Sprint("tcp by name ", rcode), "ResolutionUnavailable",
			&tcp.Settings{Addresses: []string{"web.example:" + port(plain)}},
			environment.Pod{Resolver: asking(nameServer(t, rcode))})
	}
	for way, reason := range map[string]string{
		refuses: "ConnectionRefused", resets: "ConnectionReset", closes: "ConnectionReset", keeps: "Timeout",
	} {
		pod := environment.Pod{Resolver: asking(good), Node: "me"}
		add("http "+way, reason, &httpcheck.Settings{URL: "http://" + front(t, way, plain)}, pod)
		pod.API = apitest.Client(t, authority, authority.Issue(t, tlstest.Certificate{}), http.HandlerFunc(apiServer))
		pod.API.Port = port(front(t, way, pod.API.Address()))
		byAddress := &kubernetesapi.Settings{Via: []string{kubernetesapi.ViaAddress}, ExpectUser: "worker"}
		add("api "+way, reason, byAddress, pod)
		pod.API = apitest.Client(t, authority, authority.Issue(t, tlstest.Certificate{}), http.HandlerFunc(apiServer))
		pod.API.Port = port(front(t, way, pod.API.Address()))
		add("discovery "+way, reason, &servicediscovery.Settings{}, pod)
	}
	for way, reason := range map[string]string{refuses: "ConnectionRefused", resets: "ConnectionReset"} {
		settings := &tcp.Settings{Addresses: []string{front(t, way, plain)}}
		add("tcp "+way, reason, settings, environment.Pod{Resolver: asking()})
	}
	api := apitest.Client(t, authority, authority.Issue(t, tlstest.Certificate{}), http.HandlerFunc(apiServer))
	for way, reason := range map[string]string{refuses: "ConnectionRefused", resets: "ConnectionReset"} {
		settings := &peers.Settings{Selector: "app=web", Port: int32(number(front(t, way, plain)))}
		add("peers "+way, reason, settings, environment.Pod{Resolver: asking(), Node: "me", API: api})
	}

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	report := run.Run(ctx, jobs, nil)
	if report.Outcome != result.Passed {
		t.Errorf("got %s", report.Outcome)
	}
	for _, c := range report.Checks {
		if took := time.Duration(c.DurationMs) * time.Millisecond; took < broken/2 || took > 9*time.Second {
			t.Errorf("%s took %s", c.Name, took)
		}
		if c.Outcome != result.Warning || c.Reason != want[c.Name] || !strings.Contains(c.Message, "answered at the ") {
			t.Errorf("%s: got %+v", c.Name, c)
		}
	}
}

func port(address string) string { return fmt.Sprint(number(address)) }

func number(address string) uint16 { return netip.MustParseAddrPort(address).Port() }
