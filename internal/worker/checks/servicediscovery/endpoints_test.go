package servicediscovery

import (
	"encoding/json"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
)

// A dual-stack pod is in a slice of each family, and is one endpoint.
func TestReadyEndpointsAreCountedOnce(t *testing.T) {
	for _, c := range []struct {
		name, slices string
		ready, all   int
	}{
		{"dual-stack", `[
			{"addressType":"IPv4","endpoints":[
				{"addresses":["10.0.0.1"],"conditions":{"ready":true},"targetRef":{"kind":"Pod","namespace":"n","name":"a"}},
				{"addresses":["10.0.0.2"],"conditions":{"ready":false},"targetRef":{"kind":"Pod","namespace":"n","name":"b"}}]},
			{"addressType":"IPv6","endpoints":[
				{"addresses":["fd00::1"],"targetRef":{"kind":"Pod","namespace":"n","name":"a"}},
				{"addresses":["fd00::2"],"conditions":{"ready":false},"targetRef":{"kind":"Pod","namespace":"n","name":"b"}}]}]`, 1, 2},
		{"without pods", `[
			{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]},{"addresses":["10.0.0.2"]}]},
			{"addressType":"IPv6","endpoints":[{"addresses":["fd00::1"]}]}]`, 2, 2},
		{"in two slices while it moves", `[
			{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}]},
			{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}]}]`, 1, 1},
		{"two pods of the host's network", `[
			{"addressType":"IPv4","endpoints":[
				{"addresses":["10.0.0.1"],"targetRef":{"kind":"Pod","namespace":"n","name":"a"}},
				{"addresses":["10.0.0.1"],"targetRef":{"kind":"Pod","namespace":"n","name":"b"}}]}]`, 2, 2},
		{"none", `[{"addressType":"IPv4","endpoints":[{"addresses":[]}]}]`, 0, 0},
	} {
		var slices []apiserver.EndpointSlice
		if err := json.Unmarshal([]byte(c.slices), &slices); err != nil {
			t.Fatal(err)
		}
		if e := endpointsOf(slices); e.ready != c.ready || e.all != c.all {
			t.Errorf("%s: %d ready of %d, want %d of %d", c.name, e.ready, e.all, c.ready, c.all)
		}
	}
}
