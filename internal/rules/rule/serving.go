package rule

// NRCLease is the Lease by which the node-readiness-controller elects its leader, in whatever namespace it runs.
const NRCLease = "ba65f13e.readiness.node.x-k8s.io"

// The Lease by which one of several installations serves rules. It is in the namespace of events on nodes: the only one
// in which every installation has a Role already.
const (
	LeaseName      = "node-ready-rules"
	LeaseNamespace = "default"
	// StateAnnotation of that Lease says how rules stand, for people and for kubectl node-ready: "state: why".
	StateAnnotation = "node-ready/rules-state"
)

// ServingState is whether this controller serves rules.
type ServingState string

// The states.
const (
	// Unknown: it is not known yet whether rules must be served. Nodes wait, because no gate may be skipped while a cache
	// fills.
	Unknown ServingState = "unknown"
	// Absent: the API server has no NodeReadinessRules.
	Absent ServingState = "absent"
	// StandingBack: another controller serves them.
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
