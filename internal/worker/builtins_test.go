package worker_test

import (
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
)

// A clock that is off breaks tokens and leases later, so every run looks, and none fails for it.
func TestTheClockIsABuiltInWarning(t *testing.T) {
	for _, s := range worker.BuiltIns() {
		if s.Name == "clock" {
			if s.Type != "clock" || s.Severity != checks.Advisory || *s.Clock.MaxSkewSeconds != 30 {
				t.Errorf("got %+v", s)
			}
			return
		}
	}
	t.Error("it is none of the built-in checks")
}
