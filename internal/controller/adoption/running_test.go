package adoption_test

import (
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// The running controller adopts the nodes that it finds, and those that get the label later.
func TestAdoptionByTheController(t *testing.T) {
	w := world.OnServer(t, "")
	found, later := labelled(w, "found"), w.Node("later", world.Untainted, world.Pooled)
	w.Run()
	adopted := func(node string) func() string {
		return func() string {
			if r := w.Record(node); r.LastReason != attempt.ReasonAdopted {
				return r.Encode()
			}
			return ""
		}
	}
	w.Eventually("a node that was there is adopted", adopted(found.Name))
	w.Patch(later, `{"metadata":{"labels":{"node-ready/verified":"true"}}}`)
	w.Eventually("a node that gets the label is adopted", adopted(later.Name))
}
