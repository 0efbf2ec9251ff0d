package rule

import (
	"strings"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
)

// foreign is who else writes the status of a rule, by when: a controller that serves it too, and holds no Lease that would
// show it. What was written before we first looked is history.
type foreign struct {
	known bool
	last  time.Time
}

// see looks at who wrote the rule's status. fresh reports whether that was since the last look.
func (f *foreign) see(o *v1alpha1.NodeReadinessRule) (manager string, fresh bool) {
	last := time.Time{}
	for _, e := range o.ManagedFields {
		if e.Subresource != "status" || e.Manager == fieldManager || strings.HasPrefix(e.Manager, "kubectl") || e.Time == nil {
			continue
		}
		if e.Time.After(last) {
			last, manager = e.Time.Time, e.Manager
		}
	}
	fresh = f.known && last.After(f.last)
	f.known, f.last = true, last
	return manager, fresh
}
