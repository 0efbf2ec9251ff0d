// Package clock is the check type clock: this node's clock agrees with the API server's.
package clock

import (
	"context"
	"errors"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/check"
	"github.com/kube-node-ready/kube-node-ready/internal/check/fault"
	"github.com/kube-node-ready/kube-node-ready/internal/check/kubeapi"
)

// New makes the probe.
func New(settings *check.Clock, api *kubeapi.Client) check.Probe {
	allowed := time.Duration(check.DefaultMaxSkewSeconds) * time.Second
	if settings != nil && settings.MaxSkewSeconds > 0 {
		allowed = time.Duration(settings.MaxSkewSeconds) * time.Second
	}
	return func(ctx context.Context) check.Finding {
		server := "the API server at " + api.Address()
		watched, progress := fault.Watch(ctx)
		date, sent, received, err := api.Date(watched)
		if err != nil {
			if errors.Is(err, kubeapi.ErrNoDate) {
				return check.Fail(check.ReasonNoDate, "%s sent no usable Date header", server)
			}
			return progress.Tell(server, err)
		}
		return judge(server, skew(date, sent, received), allowed)
	}
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
