package daemonset

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"time"
)

// proxy stands between a process and the API server, and counts the writes.
type proxy struct {
	mu     sync.Mutex
	writes []string
	// disturb, if set, is called before and after each write, with its number from 1.
	disturb func(number int, done bool)
	// slow, if set before a process starts, is a path that is answered after slowness.
	slow string
}

// slowness is how long a proxy holds a request for its slow path back.
const slowness = 400 * time.Millisecond

// through lets the scene's processes reach the API server through a proxy.
func (s *scene) through() *proxy {
	s.Helper()
	p := &proxy{}
	server, err := control.Relay("127.0.0.1:0", func(forward *httputil.ReverseProxy) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == p.slow {
				time.Sleep(slowness)
			}
			if r.Method != http.MethodPatch {
				forward.ServeHTTP(w, r)
				return
			}
			p.mu.Lock()
			p.writes = append(p.writes, strings.TrimPrefix(r.URL.Path, "/api/v1/nodes/"+s.name))
			number, disturb := len(p.writes), p.disturb
			p.mu.Unlock()
			if disturb != nil {
				disturb(number, false)
			}
			answer := httptest.NewRecorder()
			if r.Context().Err() == nil {
				forward.ServeHTTP(answer, r)
			}
			if disturb != nil {
				disturb(number, true)
			}
			for k, v := range answer.Header() {
				w.Header()[k] = v
			}
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes()) // the process may be gone
		})
	})
	s.must(server, err)
	s.Cleanup(func() { _ = server.Close() })
	host, port, err := net.SplitHostPort(server.Addr)
	s.must(host, err)
	s.host = host
	s.apiPort, err = net.LookupPort("tcp", port)
	s.must(nil, err)
	return p
}

func (p *proxy) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.writes...)
}

// meet sets what disturbs the writes from now on, which are counted from 1 again.
func (p *proxy) meet(disturb func(number int, done bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes, p.disturb = nil, disturb
}
