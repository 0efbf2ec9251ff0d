// Package weekday is a check type for a test: the day is the one that is expected.
package weekday

import (
	"context"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
)

// Settings looks at the calendar.
type Settings struct {
	// Not is a day that fails.
	Not string `json:"not,omitempty" required:"a day such as Monday"`
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }

// New prepares the check.
func (s *Settings) New(environment.Pod) check.Func {
	return func(context.Context) check.Finding {
		if day := time.Now().Weekday().String(); day == s.Not {
			return check.Fail(check.ReasonUnknown, "it is %s", day)
		}
		return check.Pass("it is not %s", s.Not)
	}
}
