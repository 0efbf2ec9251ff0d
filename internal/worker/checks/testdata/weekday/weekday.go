// Package weekday is a check type for a test: the day is the one that is expected.
package weekday

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/around"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// Settings looks at the calendar.
type Settings struct {
	// Not is a day that fails.
	Not string `json:"not,omitempty"`
}

// Validate reports every fault of the settings.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	if s == nil || s.Not == "" {
		return field.ErrorList{field.Required(p.Child("not"), "a day such as Monday")}
	}
	return nil
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }

// New prepares the check.
func (s *Settings) New(around.Pod) check.Func {
	return func(context.Context) check.Finding {
		if day := time.Now().Weekday().String(); day == s.Not {
			return check.Fail(check.ReasonUnknown, "it is %s", day)
		}
		return check.Pass("it is not %s", s.Not)
	}
}
