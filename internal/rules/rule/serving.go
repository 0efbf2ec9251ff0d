package rule

import (
	"fmt"
	"time"
)

// NRCLease is the name of the Lease by which the node-readiness-controller elects its leader, in whatever namespace it runs.
const NRCLease = "ba65f13e.readiness.node.x-k8s.io"

// The Lease by which one of several installations serves rules. It is where events on nodes are: the one namespace in which
// every installation has a Role already.
const (
	LeaseName      = "node-ready-rules"
	LeaseNamespace = "default"
	// StateAnnotation says in it, for people and for kubectl node-ready, how rules stand: "state: why".
	StateAnnotation = "node-ready/rules-state"
)

// unheldFor is how long NRC's Lease must have been unheld before rules are served: during a rollout nobody holds it for some
// seconds.
const unheldFor = time.Minute

// LeaseObservation is what was seen of a Lease, on the clock that saw it.
type LeaseObservation struct {
	Namespace, Name string
	// Holder is empty for a Lease that nobody holds, or that is gone.
	Holder string
	// Duration is for how long after a renewal it is held.
	Duration time.Duration
	// Changed is when it was last seen to change; a renewal is a change. Zero for one that was unheld before this process
	// began, and has not changed since.
	Changed time.Time
}

// heldUntil is when the Lease is held no longer unless it is renewed.
func (s LeaseObservation) heldUntil() time.Time {
	if s.Holder == "" {
		return s.Changed
	}
	return s.Changed.Add(s.Duration)
}

// Held reports whether somebody holds the Lease.
func (s LeaseObservation) Held(now time.Time) bool { return now.Before(s.heldUntil()) }

// StandBack says why rules are left to the node-readiness-controller; empty where they are not. wait is when to ask again.
func StandBack(leases []LeaseObservation, takeOver bool, now time.Time) (why string, wait time.Duration) {
	if takeOver {
		return "", 0
	}
	for _, l := range leases {
		left := l.heldUntil().Add(unheldFor).Sub(now)
		if left <= 0 {
			continue
		}
		if wait == 0 || left < wait {
			wait = left
		}
		switch {
		case l.Held(now):
			why = fmt.Sprintf("Lease %s/%s is held by %s: the node-readiness-controller is at work", l.Namespace, l.Name, l.Holder)
		case why == "":
			why = fmt.Sprintf("Lease %s/%s of the node-readiness-controller was held until now; rules are served once nobody has held it for %s", l.Namespace, l.Name, unheldFor)
		}
	}
	return why, wait
}

// ServingState is whether this controller serves rules.
type ServingState string

// The states.
const (
	// Unknown: what there is to serve is not known yet. Nodes wait: a gate must not be skipped because a cache is filling.
	Unknown ServingState = "unknown"
	// Absent: the API server has no NodeReadinessRules.
	Absent ServingState = "absent"
	// StandingBack: another controller serves them.
	StandingBack ServingState = "standing-back"
	// Forbidden: the controller may not read them.
	Forbidden ServingState = "forbidden"
	// Serving: this controller does.
	Serving ServingState = "serving"
)

// ServingStates lists them.
func ServingStates() []ServingState {
	return []ServingState{Unknown, Absent, StandingBack, Forbidden, Serving}
}
