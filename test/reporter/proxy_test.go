package reporter

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"time"
)

// proxy stands between reporters and the API server: it records requests, answers in the server's place, and goes away.
type proxy struct {
	s       *scene
	address string
	handler http.Handler
	server  *httptest.Server

	mu       sync.Mutex
	requests []request
	// answer, if set, may answer a request; it reports whether it did.
	answer func(w http.ResponseWriter, r *http.Request) bool
}

type request struct {
	what string // method, and subresource
	at   time.Time
}

// through lets the scene's reporters reach the API server through a proxy.
func (s *scene) through() *proxy {
	s.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(control.CA())
	target, err := url.Parse(control.URL())
	s.must(target, err)
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	p := &proxy{s: s, address: "127.0.0.1:0"}
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := r.Method
		if len(r.URL.Path) > len("/status") && r.URL.Path[len(r.URL.Path)-len("/status"):] == "/status" {
			what += " status"
		}
		p.mu.Lock()
		p.requests = append(p.requests, request{what, time.Now()})
		answer := p.answer
		p.mu.Unlock()
		if answer == nil || !answer(w, r) {
			forward.ServeHTTP(w, r)
		}
	})
	p.open()
	s.Cleanup(func() { p.close() })
	host, port, err := net.SplitHostPort(p.address)
	s.must(host, err)
	s.host = host
	s.port, err = net.LookupPort("tcp", port)
	s.must(nil, err)
	return p
}

// open listens, at the same address as before.
func (p *proxy) open() {
	p.s.Helper()
	cert, key, err := control.ServingCertificate()
	p.s.must(cert, err)
	pair, err := tls.X509KeyPair(cert, key)
	p.s.must(pair, err)
	listener, err := net.Listen("tcp", p.address)
	p.s.must(listener, err)
	p.address = listener.Addr().String()
	p.server = httptest.NewUnstartedServer(p.handler)
	_ = p.server.Listener.Close()
	p.server.Listener = listener
	p.server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	p.server.StartTLS()
}

// close refuses and drops connections.
func (p *proxy) close() {
	p.server.CloseClientConnections()
	p.server.Close()
}

func (p *proxy) respond(answer func(w http.ResponseWriter, r *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

// seen are the requests so far.
func (p *proxy) seen() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

func (p *proxy) kinds() []string {
	var kinds []string
	for _, r := range p.seen() {
		kinds = append(kinds, r.what)
	}
	return kinds
}
