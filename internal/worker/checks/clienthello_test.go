package checks_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/clock"
	httpcheck "github.com/kube-node-ready/kube-node-ready/internal/worker/checks/http"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/kubernetesapi"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/peers"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/servicediscovery"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/run"
	"github.com/kube-node-ready/kube-node-ready/test/servers/apitest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/hellotest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// connectProxy leads every CONNECT to one server.
func connectProxy(t *testing.T, server string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		behind, err := net.Dial("tcp", server)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = behind.Close() }()
		w.WriteHeader(http.StatusOK)
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = client.Close() }()
		go func() { _, _ = io.Copy(behind, client); _ = behind.Close() }()
		_, _ = io.Copy(client, behind)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Every check that speaks TLS passes, with a warning, where a ClientHello that takes two packets is lost and one in a
// single packet is answered.
func TestALargeClientHelloIsLost(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	site := tlstest.Serve(t, certificate, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	dns := asking(nameServer(t, mdns.RcodeSuccess))
	peer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close() })
	time.Sleep(broken) // the name server is that long

	var jobs []run.Job
	want := map[string]string{}
	for way, reason := range map[hellotest.Way]string{hellotest.Drops: "Timeout", hellotest.Resets: "ConnectionReset"} {
		add := func(name string, settings checks.Settings, api *apiserver.Client) {
			name += " " + string(way)
			spec := checks.Spec{Name: name, TimeoutSeconds: new(int32(10))}
			pod := environment.Pod{Resolver: dns, Node: "me", API: api}
			jobs = append(jobs, run.Job{Spec: spec, Check: settings.New(pod)})
			want[name] = reason
		}
		api := func() *apiserver.Client {
			c := apitest.Client(t, authority, certificate, http.HandlerFunc(apiServer))
			c.Port = port(hellotest.Front(t, way, c.Address()))
			return c
		}
		front := hellotest.Front(t, way, site.Listener.Addr().String())
		add("http", &httpcheck.Settings{URL: "https://" + front, CA: authority.PEM()}, nil)
		add("http with a proxy", &httpcheck.Settings{URL: "https://good.example", CA: authority.PEM(),
			Proxy: connectProxy(t, front)}, nil)
		add("api", &kubernetesapi.Settings{Via: []string{kubernetesapi.ViaAddress}, ExpectUser: "worker"}, api())
		add("discovery", &servicediscovery.Settings{}, api())
		add("peers", &peers.Settings{Selector: "app=web", Port: int32(number(peer.Addr().String()))}, api())
		add("clock", &clock.Settings{}, api())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	report := run.Run(ctx, jobs, nil)
	if report.Outcome != result.Passed {
		t.Errorf("got %s", report.Outcome)
	}
	for _, c := range report.Checks {
		if c.Outcome != result.Warning || c.Reason != want[c.Name] || strings.Count(c.Message, "ML-KEM") != 1 {
			t.Errorf("%s: got %+v", c.Name, c)
		}
	}
}
