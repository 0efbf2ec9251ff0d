package decide

import (
	"errors"
	"fmt"
	"time"
)

// Loaders load evidence into what Resolve was called with, one for each need. They are given the plan that asks.
type Loaders map[Need]func(Plan) error

// ErrStop ends a decision without an error, where a loader returns it: another queue goes on with it, or nothing is
// left to decide. The plan then goes on naming its need.
var ErrStop = errors.New("the decision ends here")

// Loader is a loader that puts what load returns where the evidence has it.
func Loader[T any](to **T, load func() (T, error)) func(Plan) error {
	return func(Plan) error {
		loaded, err := load()
		if err == nil {
			*to = &loaded
		}
		return err
	}
}

// Resolve decides what is next, and loads the evidence that Next asks for. A need without a loader is an error. That
// of NeedFresh replaces the Input; what was loaded before may be older than the node that was read, so all of it but
// the slot is dropped.
func Resolve(in *Input, ev *Evidence, now func() time.Time, loaders Loaders) (Plan, error) {
	for {
		plan := Next(*in, *ev, now())
		if plan.Need == NeedNothing {
			return plan, nil
		}
		load, ok := loaders[plan.Need]
		if !ok {
			return plan, fmt.Errorf("the decision needs evidence that nobody loads: %s", plan.Need)
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
			return plan, fmt.Errorf("the evidence was loaded and is not there: %s", plan.Need)
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
	case NeedControlPrerequisites:
		return ev.ControlUnmet != nil
	case NeedFresh:
		return ev.Fresh
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
