package leader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// ErrNotLeading is what a refused write's error wraps. Such a write was not sent.
var ErrNotLeading = errors.New("not leading")

// RefusedError is the error of a refused write. It wraps ErrNotLeading.
type RefusedError struct {
	Method, Path string
	// Why is for a person: the lease was released, never held, or last renewed so long ago.
	Why string
}

// Error names the write and the reason.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s %s refused: %s: %s", e.Method, e.Path, ErrNotLeading, e.Why)
}

// Unwrap returns ErrNotLeading.
func (e *RefusedError) Unwrap() error { return ErrNotLeading }

// Transport wraps next (rest.Config.Wrap takes it) and refuses writes that the lease does not cover with a
// RefusedError. GET, HEAD and OPTIONS always pass. All other methods are writes, even the POST of a TokenReview or a
// SelfSubjectAccessReview, which changes nothing. A replica that does not lead needs an unfenced client for these.
func (f *Fence) Transport(next http.RoundTripper) http.RoundTripper {
	if f == nil {
		return next
	}
	return &transport{fence: f, next: next}
}

type transport struct {
	fence *Fence
	next  http.RoundTripper
}

// WrappedRoundTripper lets client-go reach the transport below (k8s.io/apimachinery/pkg/util/net), to close idle
// connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip sends a read, and a write that the lease covers.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions: // "" is net/http's GET
		return t.next.RoundTrip(req)
	}
	age, open := t.fence.age()
	if !open || age >= RenewDeadline {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper closes it, also where it fails
		}
		return nil, &RefusedError{Method: req.Method, Path: req.URL.Path, Why: why(age, open)}
	}
	// A request may wait here for a connection longer than the lease lasts. One that is cut off may have been carried out;
	// its error is therefore a timeout's and not ErrNotLeading.
	ctx, cancel := context.WithTimeout(req.Context(), LeaseDuration-age)
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil || resp.Body == nil {
		cancel()
		return resp, err
	}
	resp.Body = &body{ReadCloser: resp.Body, done: cancel}
	return resp, nil
}

func why(age time.Duration, open bool) string {
	if !open {
		return "this process does not hold the lease"
	}
	return fmt.Sprintf("the lease was last renewed %s ago", age.Round(time.Millisecond))
}

// body ends the request's time limit when its answer is read.
type body struct {
	io.ReadCloser
	done context.CancelFunc
}

// Close closes the answer.
func (b *body) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}
