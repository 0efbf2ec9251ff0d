package reporter

import (
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"time"
)

// proxy stands between reporters and the API server: it records requests, answers in the server's place, and goes away.
type proxy struct {
	s       *scene
	address string
	server  *http.Server

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
	p := &proxy{s: s, address: "127.0.0.1:0"}
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
	server, err := control.Relay(p.address, func(forward *httputil.ReverseProxy) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			what := r.Method
			if strings.HasSuffix(r.URL.Path, "/status") {
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
	})
	p.s.must(server, err)
	p.server, p.address = server, server.Addr
}

// close refuses and drops connections.
func (p *proxy) close() { _ = p.server.Close() }

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
