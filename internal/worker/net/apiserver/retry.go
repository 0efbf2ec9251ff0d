package apiserver

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

// again reports whether a request that was answered with the status is worth repeating.
type again func(status int) bool

func refused(status int) bool { return (&StatusError{Code: status}).Reason().Refusal() }

func refusedOrMissing(status int) bool { return refused(status) || status == http.StatusNotFound }

// insist sends a request until it is answered, and not with a status that is to be repeated, within the context's
// deadline and no sooner than the server asks for. Where it is not, what the server said is more than that it then
// said nothing.
func insist(
	ctx context.Context, repeat again, client *http.Client, send func(context.Context) (Response, error),
) (Response, error) {
	type sent struct {
		Response
		err error
	}
	last := retry.Do(ctx, retry.Lost, func(ctx context.Context) retry.Answer[sent] {
		r, err := send(ctx)
		answer := retry.Answer[sent]{Value: sent{r, err}}
		switch {
		case err != nil:
			if reason, text := neterror.Of(err); reason.Transient() {
				answer.Again, answer.Text = reason, "the API server "+text
			}
		case repeat(r.Status):
			status := NewStatusError(r)
			answer.Again, answer.Text = status.Reason(), "the API server "+status.Error()
			answer.After = RetryAfter(r.Header, time.Now())
		}
		if answer.Again != check.NoReason {
			client.CloseIdleConnections() // a new one may lead to another API server
		}
		return answer
	})
	return last.Response, last.err
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
