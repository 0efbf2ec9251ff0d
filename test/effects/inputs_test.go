package effects

import (
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

// TestInputs names what TestMain reads of the chart: go test takes down only what is opened once the tests have begun.
func TestInputs(t *testing.T) {
	if err := inputs.Track("../../deploy/helm/kube-node-ready"); err != nil {
		t.Fatal(err)
	}
}
