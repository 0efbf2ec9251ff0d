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

// defaultMaxSkewSeconds is below what breaks tokens, leases and TLS, and above the resolution of a Date header.
const defaultMaxSkewSeconds = 5

// Settings compares this node's clock with the API server's.
type Settings struct {
	// MaxSkewSeconds either way. Default 5.
	MaxSkewSeconds *int32 `json:"maxSkewSeconds,omitempty" minimum:"1" maximum:"86400"`
}

// NeedsAPI reports whether the Kubernetes API is called: always.
func (s *Settings) NeedsAPI() bool { return true }

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
		return evaluate(server, date, sent, received, allowed)
	}
	return func(ctx context.Context) check.Finding { return retry.Finding(ctx, retry.Lost, read) }
}

// evaluate fails only if both bounds of the skew exceed what is allowed. The Date header has whole seconds (RFC 9110,
// section 5.6.7), so between sending and receiving the server's clock was between date and date+1s.
func evaluate(server string, date, sent, received time.Time, allowed time.Duration) check.Finding {
	least, most := sent.Sub(date.Add(time.Second)), received.Sub(date) // how far this node's clock is ahead
	skew, direction := least, "ahead of"
	if most < -allowed {
		skew, direction = -most, "behind"
	}
	if skew > allowed {
		return check.Fail(check.ReasonClockSkew, "this node's clock is at least %s %s %s, at most %s are allowed: "+
			"check time synchronisation (chrony, systemd-timesyncd)", skew.Round(time.Millisecond), direction, server, allowed)
	}
	return check.Pass("this node's clock is between %s and %s ahead of %s",
		least.Round(time.Millisecond), most.Round(time.Millisecond), server)
}
