package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

// StatusError is a response with a status other than success.
type StatusError struct {
	Code int
	// Message is the API server's own.
	Message string
	// RetryAfter is how long the server asks the client to wait; 0 if it does not.
	RetryAfter time.Duration
}

// maxStatusMessage limits how much of a response is repeated in a message.
const maxStatusMessage = 300

// NewStatusError takes the message from the response's Status object, else from the beginning of its body.
func NewStatusError(r Response) *StatusError {
	var status struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
	}
	message := string(r.Body)
	if json.Unmarshal(r.Body, &status) == nil && status.Kind == "Status" {
		message = status.Message
	}
	message = strings.TrimSpace(message)
	message = strings.ToValidUTF8(message[:min(len(message), maxStatusMessage)], "") // not half a character
	return &StatusError{Code: r.Status, Message: message, RetryAfter: retryAfter(r.Header, time.Now())}
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("answered %d %s", e.Code, http.StatusText(e.Code))
	switch e.Reason() {
	case check.ReasonUnauthorized:
		text += ": the service account's token is not accepted"
	case check.ReasonForbidden:
		text += ": the worker's service account lacks a permission"
	case check.ReasonTooManyRequests:
		text += ": the API server is overloaded"
	case check.ReasonAPIUnavailable:
		text += ": the API server, or something that it depends on, is broken"
	case check.ReasonUnexpectedAPIStatus:
		text += ": any node gets this answer"
	}
	if e.Message != "" {
		text += " (" + e.Message + ")"
	}
	return text
}

// Reason is the check's reason for this status.
func (e *StatusError) Reason() check.Reason {
	switch {
	case e.Code == http.StatusUnauthorized:
		return check.ReasonUnauthorized
	case e.Code == http.StatusForbidden:
		return check.ReasonForbidden
	case e.Code == http.StatusTooManyRequests:
		return check.ReasonTooManyRequests
	case e.Code >= 500:
		return check.ReasonAPIUnavailable
	}
	return check.ReasonUnexpectedAPIStatus
}

// HasStatus reports whether the error is a response with the given status.
func HasStatus(err error, code int) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && status.Code == code
}

// BodyError is a response that cannot be decoded.
type BodyError struct{ Cause error }

func (e *BodyError) Error() string {
	return "answered something else than the requested object: " + e.Cause.Error()
}

// Reason is the check's reason for such a response.
func (e *BodyError) Reason() check.Reason { return check.ReasonUnexpectedBody }

// Unwrap returns the cause.
func (e *BodyError) Unwrap() error { return e.Cause }

func isRefusal(status int) bool { return (&StatusError{Code: status}).Reason().Refusal() }

func isRefusalOrMissing(status int) bool { return isRefusal(status) || status == http.StatusNotFound }

// sendWithRetry sends a request until it is answered with a status that is not retryable, within the context's deadline
// and no sooner than the server asks for. If every answer is retryable, the result is the last answer, which says more
// than a later timeout.
func (c *Client) sendWithRetry(
	ctx context.Context, retryable func(status int) bool, client *http.Client, host string, r Request,
) (Response, error) {
	last := retry.Do(ctx, retry.Lost, func(ctx context.Context) retry.Answer[Response] {
		response, err := c.send(ctx, client, host, r)
		answer := retry.Answer[Response]{Value: response, Err: err}
		switch {
		case err != nil:
			if reason, text := neterror.Of(err); reason.Transient() {
				answer.Again, answer.Text = reason, "the API server "+text
			}
		case retryable(response.Status):
			status := NewStatusError(response)
			answer.Again, answer.Text = status.Reason(), "the API server "+status.Error()
			answer.After = status.RetryAfter
		}
		if answer.Again != check.NoReason {
			client.CloseIdleConnections() // a new connection may lead to another API server
		}
		return answer
	})
	return last.Value, last.Err
}

// maxRetryAfter limits how long the API server may ask a process to wait.
const maxRetryAfter = 5 * time.Minute

// Backoff is how long a process waits after a failed request that follows so many others. It doubles from a second,
// less a jitter of up to half so that many nodes spread out. The longest, 10 seconds, is the kubelet's
// nodeStatusUpdateFrequency: a new node may not reach the API server at first, and is held until it does. If the API
// server asks for a longer wait (Retry-After), that counts, up to 5 minutes.
func Backoff(before int, err error) time.Duration {
	wait := min(time.Second<<min(before, 10), 10*time.Second)
	wait -= rand.N(wait / 2)
	if status, ok := errors.AsType[*StatusError](err); ok {
		wait = max(wait, min(status.RetryAfter, maxRetryAfter))
	}
	return wait
}

// retryAfter reads the Retry-After header (RFC 9110): seconds or a date. It is 0 without one.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return at.Sub(now)
	}
	return 0
}
