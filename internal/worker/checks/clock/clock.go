// Package clock is the check type clock: this node's clock agrees with the API server's.
package clock

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
)

// New prepares the check.
func (s *Settings) New(pod environment.Pod) check.Func {
	allowed := time.Duration(ptr.Deref(ptr.Deref(s, Settings{}).MaxSkewSeconds, defaultMaxSkewSeconds)) * time.Second
	read := func(ctx context.Context) check.Finding {
		server := "the API server at " + pod.API.Address()
		watched, progress := neterror.Watch(ctx)
		date, sent, received, err := pod.API.Date(watched)
		if err != nil {
			if errors.Is(err, apiserver.ErrNoDate) {
				return check.Fail(check.ReasonNoDate, "%s sent no usable Date header", server)
			}
			return progress.Finding(server, err)
		}
		return judge(server, skew(date, sent, received), allowed)
	}
	return func(ctx context.Context) check.Finding { return retry.Finding(ctx, retry.Lost, read) }
}

// bounds of the skew: positive when this node's clock is ahead.
type bounds struct{ least, most time.Duration }

// skew bounds how far this node's clock is ahead of the server's. The Date header holds
// whole seconds (RFC 9110, section 5.6.7) of a moment between sending and receiving, so the
// server's clock then stood between date and date+1s.
func skew(date, sent, received time.Time) bounds {
	return bounds{least: sent.Sub(date.Add(time.Second)), most: received.Sub(date)}
}

// judge fails only what is certain: a skew whose bounds both lie beyond what is allowed.
func judge(server string, b bounds, allowed time.Duration) check.Finding {
	switch {
	case b.least > allowed:
		return check.Fail(check.ReasonClockSkew, "this node's clock is at least %s ahead of %s, at most %s are allowed: check time synchronisation (chrony, systemd-timesyncd)",
			b.least.Round(time.Millisecond), server, allowed)
	case b.most < -allowed:
		return check.Fail(check.ReasonClockSkew, "this node's clock is at least %s behind %s, at most %s are allowed: check time synchronisation (chrony, systemd-timesyncd)",
			(-b.most).Round(time.Millisecond), server, allowed)
	}
	return check.Pass("this node's clock is between %s and %s ahead of %s",
		b.least.Round(time.Millisecond), b.most.Round(time.Millisecond), server)
}
