package decide

import (
	"errors"
	"fmt"
	"time"
)

// Loaders load evidence into the Input and Evidence that Resolve was called with, one loader for each need. They get
// the plan that names the need.
type Loaders map[Need]func(Plan) error

// ErrStop is returned by a loader to end a decision without an error, because another queue continues it or nothing is
// left to decide. The plan still names its need.
var ErrStop = errors.New("the decision ends here")

// Loader returns a loader that stores the result of load in a field of the evidence.
func Loader[T any](to **T, load func() (T, error)) func(Plan) error {
	return func(Plan) error {
		loaded, err := load()
		if err == nil {
			*to = &loaded
		}
		return err
	}
}

// Resolve calls Next until it needs no more evidence, and loads what it needs. A need without a loader is an error. The
// loader of NeedFresh replaces the Input. Earlier evidence may be older than the node, so Resolve drops all of it
// except the slot.
func Resolve(in *Input, ev *Evidence, now func() time.Time, loaders Loaders) (Plan, error) {
	return ResolveWith(Next, in, ev, now, loaders)
}

// ResolveWith is Resolve for another decision than Next, such as Remediation.
func ResolveWith(next func(Input, Evidence, time.Time) Plan, in *Input, ev *Evidence, now func() time.Time,
	loaders Loaders) (Plan, error) {
	for {
		plan := next(*in, *ev, now())
		if plan.Need == NeedNothing {
			return plan, nil
		}
		load, ok := loaders[plan.Need]
		if !ok {
			return plan, fmt.Errorf("the decision needs evidence without a loader: %s", plan.Need)
		}
		if err := load(plan); errors.Is(err, ErrStop) {
			plan.Step = StepNone
			return plan, nil
		} else if err != nil {
			return plan, err
		}
		if plan.Need == NeedFresh {
			*ev = Evidence{Fresh: true, Slot: ev.Slot}
		}
		if !ev.has(plan.Need) {
			return plan, fmt.Errorf("the loader did not store the evidence: %s", plan.Need)
		}
	}
}

// has reports whether the evidence was loaded.
func (ev Evidence) has(n Need) bool {
	switch n {
	case NeedPrerequisites:
		return ev.Unmet != nil
	case NeedSlot:
		return ev.Slot != nil
	case NeedProbes:
		return ev.Probes != nil
	case NeedFleet:
		return ev.Fleet != nil
	case NeedFresh:
		return ev.Fresh
	case NeedWarning:
		return ev.Warning != nil
	case NeedLedger:
		return ev.Ledger != nil
	case NeedCounts:
		return ev.Counts != nil
	case NeedOccupants:
		return ev.Workloads != nil && !ev.Workloads.Stale
	case NeedWorkloads:
		return ev.Workloads != nil
	case NeedOwner:
		return ev.Owner != nil
	}
	return false
}
