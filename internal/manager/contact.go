package manager

import (
	"net/http"
	"sync/atomic"
	"time"
)

// contactWithin is how long the API server may fail to answer before the controller calls itself unhealthy: the lease's
// duration, after which another replica would act.
const contactWithin = 15 * time.Second

// contact remembers when the API server last answered and last did not.
type contact struct {
	answered, failed atomic.Int64 // Unix nanoseconds
}

// watch wraps a transport.
func (c *contact) watch(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		switch {
		case err == nil && resp.StatusCode < http.StatusInternalServerError:
			c.answered.Store(time.Now().UnixNano())
		case req.Context().Err() == nil:
			c.failed.Store(time.Now().UnixNano())
		}
		return resp, err
	})
}

// recent reports whether the last request was answered, or one not long ago.
func (c *contact) recent(now time.Time) bool {
	answered := c.answered.Load()
	return answered >= c.failed.Load() || now.Sub(time.Unix(0, answered)) < contactWithin
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
