package manager

import (
	"net/http"
	"sync/atomic"
	"time"
)

// contactWithin is how long the API server may fail to answer before the controller reports itself unhealthy. It is the
// duration of the lease, because another replica takes over after that.
const contactWithin = 15 * time.Second

// contact remembers when the API server last answered and last failed to answer, also for each collection that
// decisions depend on. Without a watch of these, the controller would continue with old data and look healthy.
type contact struct {
	any answers
	// watched are the paths of the collections, such as /api/v1/nodes. The map is not changed once requests are made.
	watched map[string]*answers
}

func newContact(watched ...string) *contact {
	c := &contact{watched: map[string]*answers{}}
	for _, path := range watched {
		c.watched[path] = &answers{}
	}
	return c
}

// observe wraps a transport.
func (c *contact) observe(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if req.Context().Err() != nil && err != nil {
			return resp, err // nobody waits for the answer any more
		}
		c.any.note(err == nil && resp.StatusCode < http.StatusInternalServerError)
		if w := c.watched[req.URL.Path]; w != nil && req.Method == http.MethodGet {
			w.note(err == nil && resp.StatusCode < http.StatusBadRequest) // a refused watch is none
		}
		return resp, err
	})
}

// recent reports whether the API server answered a short time ago, and has not refused a watch since.
func (c *contact) recent(now time.Time) bool {
	for _, w := range c.watched {
		if !w.recent(now) {
			return false
		}
	}
	return c.any.recent(now)
}

// answers are the times, in Unix nanoseconds, of the last good answer and of the last bad or missing one.
type answers struct{ good, bad atomic.Int64 }

func (a *answers) note(good bool) {
	at := time.Now().UnixNano()
	if good {
		a.good.Store(at)
	} else {
		a.bad.Store(at)
	}
}

func (a *answers) recent(now time.Time) bool {
	good := a.good.Load()
	return good >= a.bad.Load() || now.Sub(time.Unix(0, good)) < contactWithin
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
