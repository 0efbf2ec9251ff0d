package rule

// NRCLease is the Lease by which the node-readiness-controller (NRC) elects its leader, in the namespace in which it
// runs.
const NRCLease = "ba65f13e.readiness.node.x-k8s.io"

// ServingState is whether this controller serves rules.
type ServingState string

// The states.
const (
	// Unknown: it is not known yet whether rules must be served. Nodes wait, because no gate may be skipped while a cache
	// fills.
	Unknown ServingState = "unknown"
	// Absent: the API server has no NodeReadinessRules.
	Absent ServingState = "absent"
	// StandingBack: the node-readiness-controller serves them.
	StandingBack ServingState = "standing-back"
	// Forbidden: the API server rejects a request that serving them needs.
	Forbidden ServingState = "forbidden"
	// Serving: this controller serves them.
	Serving ServingState = "serving"
)

// ServingStates lists them.
func ServingStates() []ServingState {
	return []ServingState{Unknown, Absent, StandingBack, Forbidden, Serving}
}
