package apiserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// The waits between two requests, each twice the last, and shorter or longer by up to half so
// that the workers of many nodes do not all come at once. answerTime is what a last request
// gets: without so much time left, there is none.
const (
	firstWait   = 250 * time.Millisecond
	longestWait = 2 * time.Second
	answerTime  = 500 * time.Millisecond
)

// again reports whether a request that was answered with the status is worth repeating.
type again func(status int) bool

// refused: an API server that is overloaded, broken or being replaced, or that has not heard
// yet of a token or a role binding, answers otherwise a moment later.
func refused(status int) bool {
	return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError ||
		status == http.StatusUnauthorized || status == http.StatusForbidden
}

func refusedOrMissing(status int) bool { return refused(status) || status == http.StatusNotFound }

func never(int) bool { return false }

// insist sends a request until it is answered otherwise, within the context's deadline and no
// sooner than the server asks for.
func insist(ctx context.Context, repeat again, client *http.Client, send func() (Response, error)) (Response, error) {
	var last *Response
	for tries, wait := 1, firstWait; ; tries, wait = tries+1, min(2*wait, longestWait) {
		r, err := send()
		switch {
		case err != nil && last != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return *last, nil // that it said so is more than that it then said nothing
		case err != nil:
			return r, err
		}
		r.Tries = tries
		deadline, bounded := ctx.Deadline()
		left, asked := time.Until(deadline)-answerTime, RetryAfter(r.Header, time.Now())
		if !repeat(r.Status) || !bounded || left < max(asked, firstWait/2) {
			return r, nil
		}
		pause := max(asked, min(wait/2+rand.N(wait), left))
		last = &r
		select {
		case <-ctx.Done():
			return r, nil
		case <-time.After(pause):
		}
		client.CloseIdleConnections() // a new one may lead to another API server
	}
}

// RetryAfter reads RFC 9110's header, seconds or a date: how long to wait from now. It is 0 without one.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return at.Sub(now)
	}
	return 0
}
