package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/apitest"
	"github.com/kube-node-ready/kube-node-ready/test/servers/tlstest"
)

// flaky answers the first so many requests with a status, and the rest well.
type flaky struct {
	status, times int
	after         string // Retry-After
	asked         atomic.Int32
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if int(f.asked.Add(1)) <= f.times {
		if f.after != "" {
			w.Header().Set("Retry-After", f.after)
		}
		w.WriteHeader(f.status)
		return
	}
	_, _ = fmt.Fprint(w, `{}`)
}

func TestRefusalsAreAskedAgain(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	certificate := authority.Issue(t, tlstest.Certificate{})
	const always = 1 << 20
	for _, c := range []struct {
		name        string
		server      *flaky
		status      int // 0: it comes good
		least, most time.Duration
	}{
		{"503, for a moment", &flaky{status: 503, times: 2}, 0, 300 * time.Millisecond, 2900 * time.Millisecond},
		{"500", &flaky{status: 500, times: 1}, 0, 0, 2900 * time.Millisecond},
		{"401", &flaky{status: 401, times: 1}, 0, 0, 2900 * time.Millisecond},
		{"403", &flaky{status: 403, times: 1}, 0, 0, 2900 * time.Millisecond},
		{"a Service that is not there yet", &flaky{status: 404, times: 1}, 0, 0, 2900 * time.Millisecond},
		{"429, which says when", &flaky{status: 429, times: 1, after: "1"}, 0, time.Second, 2900 * time.Millisecond},
		{"429, which says when by the clock", &flaky{status: 429, times: 1, after: time.Now().Add(2 * time.Second).UTC().Format(http.TimeFormat)}, 0, 0, 3 * time.Second},
		{"429, which says too late", &flaky{status: 429, times: always, after: "3600"}, 429, 0, 2 * time.Second},
		{"503, to the end", &flaky{status: 503, times: always}, 503, 2 * time.Second, 20 * time.Second},
		{"400 is no refusal", &flaky{status: 400, times: 1}, 400, 0, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			api := apitest.Client(t, authority, certificate, c.server)
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			start := time.Now()
			_, err := api.Service(ctx, "default", "kubernetes")
			took := time.Since(start)
			var status *apiserver.StatusError
			switch {
			case c.status == 0 && err != nil:
				t.Errorf("got %v after %d requests", err, c.server.asked.Load())
			case c.status != 0 && (!errors.As(err, &status) || status.Code != c.status):
				t.Errorf("got %v", err)
			case took < c.least || took > c.most:
				t.Errorf("took %s for %d requests", took, c.server.asked.Load())
			}
		})
	}
}

// Where a server answered that it is broken, and then not at all, the first is what is known.
func TestARefusalOutlivesASilence(t *testing.T) {
	t.Parallel()
	authority := tlstest.NewAuthority(t)
	var asked atomic.Int32
	api := apitest.Client(t, authority, authority.Issue(t, tlstest.Certificate{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 1 {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer cancel()
	var status *apiserver.StatusError
	if _, err := api.Service(ctx, "default", "kubernetes"); !errors.As(err, &status) || status.Code != 503 {
		t.Errorf("got %v", err)
	}
}

func TestBackoff(t *testing.T) {
	asked := func(d time.Duration) error {
		return &apiserver.StatusError{Code: http.StatusTooManyRequests, RetryAfter: d}
	}
	for _, c := range []struct {
		name        string
		before      int
		err         error
		least, most time.Duration
	}{
		{"the first", 0, errors.New("refused"), time.Second / 2, time.Second},
		{"the third", 2, errors.New("refused"), 2 * time.Second, 4 * time.Second},
		{"the hundredth", 100, errors.New("refused"), 5 * time.Second, 10 * time.Second},
		{"the server asks for more", 0, asked(42 * time.Second), 42 * time.Second, 42 * time.Second},
		{"the server asks for less", 3, asked(time.Second), 4 * time.Second, 8 * time.Second},
		{"the server asks for a year", 0, asked(365 * 24 * time.Hour), 5 * time.Minute, 5 * time.Minute},
	} {
		for range 100 {
			if got := apiserver.Backoff(c.before, c.err); got < c.least || got > c.most {
				t.Fatalf("%s: got %v, want %v to %v", c.name, got, c.least, c.most)
			}
		}
	}
}
