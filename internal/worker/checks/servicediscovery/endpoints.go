package servicediscovery

import (
	"net/netip"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
)

// endpoints of a Service, over all its slices.
type endpoints struct {
	// addresses of all of them, in every family.
	addresses []netip.Addr
	// all and ready count them: what is in a slice of each family is one endpoint.
	all, ready int
}

// endpointsOf counts each pod once. What is no pod has nothing that ties its addresses of two
// families together, so there the family with more of them counts.
func endpointsOf(slices []apiserver.EndpointSlice) endpoints {
	var e endpoints
	known := map[string]map[string]bool{} // by family, empty for pods, and by identity: whether it is ready
	for _, slice := range slices {
		for _, endpoint := range slice.Endpoints {
			if len(endpoint.Addresses) == 0 {
				continue
			}
			// All addresses of an endpoint are the same endpoint's; consumers use the first.
			addr, err := netip.ParseAddr(endpoint.Addresses[0])
			if err != nil {
				continue
			}
			e.addresses = append(e.addresses, addr)
			family, id := slice.AddressType, addr.String()
			if ref := endpoint.TargetRef; ref != nil {
				family, id = "", ref.Kind+"/"+ref.Namespace+"/"+ref.Name
			}
			if known[family] == nil {
				known[family] = map[string]bool{}
			}
			known[family][id] = known[family][id] || endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
		}
	}
	var all, ready int
	for family, ids := range known {
		n := 0
		for _, isReady := range ids {
			if isReady {
				n++
			}
		}
		if family == "" {
			e.all, e.ready = e.all+len(ids), e.ready+n
			continue
		}
		all, ready = max(all, len(ids)), max(ready, n)
	}
	e.all, e.ready = e.all+all, e.ready+ready
	return e
}
