package http_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	httpcheck "github.com/kube-node-ready/kube-node-ready/internal/worker/checks/http"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// site is a web site with one page for each thing that can be found.
func site() http.Handler {
	mux := http.NewServeMux()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "all is well") })
	mux.HandleFunc("/created", status(http.StatusCreated))
	mux.HandleFunc("/denied", status(http.StatusUnauthorized))
	mux.HandleFunc("/broken", status(http.StatusInternalServerError))
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://u:hunter2@portal.example/login?token=hunter2", http.StatusFound)
	})
	mux.HandleFunc("/hop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusFound) })
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/stalls", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, "all")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, r.Header.Get("Authorization"))
	})
	return mux
}

func run(t *testing.T, settings httpcheck.Settings, r *resolver.Resolver) check.Finding {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if r == nil {
		r = &resolver.Resolver{}
	}
	return settings.New(environment.Pod{Resolver: r})(ctx)
}

type want struct {
	name     string
	settings httpcheck.Settings
	reason   check.Reason
	says     string
}

func verify(t *testing.T, r *resolver.Resolver, cases []want) {
	t.Helper()
	for _, c := range cases {
		f := run(t, c.settings, r)
		if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s: got %q: %q, want %q with %q", c.name, f.Reason, f.Message, c.reason, c.says)
		}
		if strings.Contains(f.Message, "hunter2") {
			t.Errorf("%s: %q gives a secret away", c.name, f.Message)
		}
	}
}

func TestResponses(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(site())
	defer s.Close()
	u := func(path string) string { return s.URL + path }
	verify(t, nil, []want{
		{"200", httpcheck.Settings{URL: u("/ok")}, check.NoReason, "answered status 200"},
		{"201", httpcheck.Settings{URL: u("/created")}, check.NoReason, "201"},
		{"401", httpcheck.Settings{URL: u("/denied")}, check.ReasonUnexpectedStatus, "status 401 Unauthorized, expected 200 to 299"},
		{"401 wanted", httpcheck.Settings{URL: u("/denied"), ExpectStatus: []int32{200, 401}}, check.NoReason, ""},
		{"200 not wanted", httpcheck.Settings{URL: u("/ok"), ExpectStatus: []int32{401, 403}}, check.ReasonUnexpectedStatus, "expected 401 403"},
		{"500", httpcheck.Settings{URL: u("/broken?key=hunter2")}, check.ReasonUnexpectedStatus, "500"},
		{"redirect", httpcheck.Settings{URL: u("/moved")}, check.ReasonRedirected, "redirects to https://portal.example/login (status 302)"},
		{"redirect wanted", httpcheck.Settings{URL: u("/moved"), ExpectStatus: []int32{302}}, check.NoReason, ""},
		{"redirect wanted, and its body", httpcheck.Settings{URL: u("/moved"), ExpectStatus: []int32{302}, ExpectBody: "portal.example"},
			check.NoReason, "answered status 302"},
		{"redirect followed", httpcheck.Settings{URL: u("/hop"), MaxRedirects: 1}, check.NoReason, "/ok answered status 200"},
		{"endless redirects", httpcheck.Settings{URL: u("/loop"), MaxRedirects: 3}, check.ReasonRedirected, "but maxRedirects (3) is reached"},
		{"body", httpcheck.Settings{URL: u("/ok"), ExpectBody: "^all is (well|fine)$"}, check.NoReason, ""},
		{"another body", httpcheck.Settings{URL: u("/ok"), ExpectBody: "^ok$"}, check.ReasonUnexpectedBody, `does not match "^ok$"`},
		{"method, headers and host", httpcheck.Settings{URL: u("/echo"), Method: "POST", Headers: map[string]string{"Host": "virtual.example", "Authorization": "x"},
			ExpectBody: "^POST virtual.example x$"}, check.NoReason, ""},
		{"no answer", httpcheck.Settings{URL: u("/slow")}, check.ReasonTimeout, "took the request, but did not answer within "},
		{"half an answer", httpcheck.Settings{URL: u("/stalls"), ExpectBody: "well"}, check.ReasonTimeout, "while its body was read"},
		{"connection cut", httpcheck.Settings{URL: u("/abort")}, check.ReasonConnectionReset, "closed the connection"},
		{"TLS to a server without", httpcheck.Settings{URL: strings.Replace(u("/ok"), "http:", "https:", 1)}, check.ReasonTLSFailed, "does not speak TLS"},
		{"nothing listens", httpcheck.Settings{URL: "http://127.0.0.1:1/"}, check.ReasonConnectionRefused, "refused"},
	})
}

func TestCertificates(t *testing.T) {
	ours, theirs := tlstest.NewAuthority(t), tlstest.NewAuthority(t)
	now := time.Now()
	serve := func(a *tlstest.Authority, c tlstest.Certificate) string {
		return tlstest.Serve(t, a.Issue(t, c), site()).URL + "/ok"
	}
	good := serve(ours, tlstest.Certificate{})
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte(ours.PEM()), 0o600); err != nil {
		t.Fatal(err)
	}
	verify(t, nil, []want{
		{"good", httpcheck.Settings{URL: good, CA: ours.PEM()}, check.NoReason, "200"},
		{"good, from a file", httpcheck.Settings{URL: good, CAFile: file}, check.NoReason, "200"},
		{"no such file", httpcheck.Settings{URL: good, CAFile: file + ".missing"}, check.ReasonConfiguration, "no such file"},
		{"not of the system's authorities", httpcheck.Settings{URL: good}, check.ReasonUntrustedAuthority, "set ca or caFile to the certificate of the authority"},
		{"another authority", httpcheck.Settings{URL: serve(theirs, tlstest.Certificate{}), CA: ours.PEM()}, check.ReasonUntrustedAuthority, "not trusted here"},
		{"another name", httpcheck.Settings{URL: serve(ours, tlstest.Certificate{OtherName: true}), CA: ours.PEM()}, check.ReasonCertificateName, "another name"},
		{"another name that is asked for", httpcheck.Settings{URL: serve(ours, tlstest.Certificate{OtherName: true}), CA: ours.PEM(), ServerName: "other.example"}, check.NoReason, ""},
		{"expired", httpcheck.Settings{URL: serve(ours, tlstest.Certificate{NotAfter: now.Add(-time.Hour)}), CA: ours.PEM()},
			check.ReasonCertificateExpired, "either it was not renewed or the clock is wrong"},
		{"not yet valid", httpcheck.Settings{URL: serve(ours, tlstest.Certificate{NotBefore: now.Add(time.Hour)}), CA: ours.PEM()},
			check.ReasonCertificateNotYet, "the clock is probably wrong"},
		{"valid long enough", httpcheck.Settings{URL: good, CA: ours.PEM(), MinCertificateValidityHours: 23}, check.NoReason, ""},
		{"not valid long enough", httpcheck.Settings{URL: good, CA: ours.PEM(), MinCertificateValidityHours: 25}, check.ReasonCertificateExpiring, "expected at least 25 hours"},
	})
}

// TestWhoseCertificateExpired checks that a message names the certificate and its owner.
func TestWhoseCertificateExpired(t *testing.T) {
	t.Parallel()
	past, future := time.Now().Add(-time.Hour), time.Now().Add(240*time.Hour)
	good, old := tlstest.NewAuthority(t), tlstest.NewAuthorityUntil(t, past)
	for _, c := range []struct {
		name, ca string
		issuer   *tlstest.Authority
		leaf     tlstest.Certificate
		says     string
	}{
		{"leaf", good.PEM(), good, tlstest.Certificate{NotAfter: past}, "a certificate of its own (server) that expired at"},
		{"leaf below an intermediate", good.PEM(), good.Intermediate(t, future), tlstest.Certificate{NotAfter: past},
			"a certificate of its own (server) that expired at"},
		{"intermediate", good.PEM(), good.Intermediate(t, past), tlstest.Certificate{},
			"the certificate of an intermediate authority (intermediate authority) that expired at"},
		{"the upper intermediate", good.PEM(), good.Intermediate(t, past).Intermediate(t, future), tlstest.Certificate{},
			"the certificate of an intermediate authority (intermediate authority) that expired at"},
		{"authority", old.PEM(), old, tlstest.Certificate{}, "an authority (test authority) whose own, among those trusted " +
			"here (ca.crt), expired at"},
		{"authority, beside a good one", old.PEM() + good.PEM(), old, tlstest.Certificate{}, "whose own, among those " +
			"trusted here (ca.crt), expired at"},
		{"authority of an intermediate", old.PEM(), old.Intermediate(t, future), tlstest.Certificate{},
			"an authority (test authority) whose own"},
	} {
		settings := httpcheck.Settings{URL: tlstest.Serve(t, c.issuer.Issue(t, c.leaf), site()).URL + "/ok", CA: c.ca}
		if f := run(t, settings, nil); f.Reason != check.ReasonCertificateExpired || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s: got %+v", c.name, f)
		}
	}
}

func TestNamesAreResolvedAsInThePod(t *testing.T) {
	s := httptest.NewServer(site())
	defer s.Close()
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	server := dnstest.Start(t, dnstest.Behaviour{
		Zone: map[string][]string{"web.default.svc.cluster.local.": {"A 127.0.0.1"}, "late.svc.cluster.local.": {"A 127.0.0.1"}},
		Rcodes: map[string]int{"late.default.svc.cluster.local.": -1, "dead.default.svc.cluster.local.": -1,
			"dead.svc.cluster.local.": -1, "dead.": -1}})
	r := &resolver.Resolver{Config: resolver.Config{Servers: []netip.AddrPort{server},
		Search: []string{"default.svc.cluster.local", "svc.cluster.local"}, Ndots: 5, Timeout: time.Second, Attempts: 1}}
	verify(t, r, []want{
		{"short name", httpcheck.Settings{URL: "http://web:" + port + "/ok"}, check.NoReason, "200"},
		{"no such name", httpcheck.Settings{URL: "http://missing:" + port + "/ok"}, check.ReasonResolutionFailed, "/ok: missing does not resolve"},
		{"a name of the search list without an answer", httpcheck.Settings{URL: "http://late:" + port + "/ok"}, check.NoReason, "200"},
		{"no answer", httpcheck.Settings{URL: "http://dead:" + port + "/ok"}, check.ReasonResolutionUnavailable, "dead does not resolve"},
	})
}
