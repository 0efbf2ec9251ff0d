package kubectlplugin

import (
	"net/http"
	"sync"
	"time"
)

// serverTime remembers what time it is by the API server: the clock of whoever asks may be minutes off, and a Lease is a matter
// of seconds.
type serverTime struct {
	mu    sync.Mutex
	ahead time.Duration // of our clock
}

// observe wraps a transport.
func (s *serverTime) observe(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil {
			if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
				ahead := time.Until(date)
				if ahead > -clockAgrees && ahead < clockAgrees {
					ahead = 0 // the header has whole seconds
				}
				s.mu.Lock()
				s.ahead = ahead
				s.mu.Unlock()
			}
		}
		return resp, err
	})
}

// clockAgrees is how far off a clock may be and count as right.
const clockAgrees = 2 * time.Second

// now is the API server's time.
func (s *serverTime) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.ahead)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
