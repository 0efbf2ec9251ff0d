package decide

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// resolve decides about a node that must be verified, with changed loaders of w. The decision needs prerequisites, a
// slot, and the fresh node.
func resolve(w world, change func(ev *Evidence, all Loaders)) (Plan, error) {
	in, ev := given(), Evidence{}
	loaders := w.loaders(&in, &ev, func(Plan) {})
	change(&ev, loaders)
	return Resolve(&in, &ev, func() time.Time { return now }, loaders)
}

// Evidence without a loader is an error. It must not look like a decision, or like one that another queue takes over.
func TestANeedThatNobodyLoadsIsAnError(t *testing.T) {
	for _, need := range []Need{NeedPrerequisites, NeedSlot, NeedFresh} {
		_, err := resolve(world{}, func(_ *Evidence, all Loaders) { delete(all, need) })
		if err == nil || !strings.Contains(err.Error(), string(need)) {
			t.Errorf("%s: %v", need, err)
		}
	}
	// A loader that loads nothing would otherwise be called forever.
	_, err := resolve(world{}, func(_ *Evidence, all Loaders) { all[NeedSlot] = func(Plan) error { return nil } })
	if err == nil || !strings.Contains(err.Error(), string(NeedSlot)) {
		t.Errorf("a slot that is not there: %v", err)
	}
	if (Evidence{}).has("an unknown need") {
		t.Error("an unknown need passes for loaded")
	}
}

func TestALoaderEndsADecision(t *testing.T) {
	failed := errors.New("failed")
	for returned, want := range map[error]error{ErrStop: nil, failed: failed} {
		plan, err := resolve(world{}, func(_ *Evidence, all Loaders) { all[NeedSlot] = func(Plan) error { return returned } })
		if plan.Need != NeedSlot || plan.Step != StepNone || !errors.Is(err, want) {
			t.Errorf("%v: %v, %+v", returned, err, plan)
		}
	}
}

// Evidence from before the read of the node may be older than the node. Only the slot stays, because it is reserved.
func TestAFreshNodeDropsTheEvidence(t *testing.T) {
	fresh := given(func(in *Input) { in.Node.UID, in.Node.BootID = "u2", "b2" })
	var have Evidence
	plan, err := resolve(world{fresh: &fresh}, func(ev *Evidence, all Loaders) {
		ev.ProbeRefused = "quota"
		load, waits := all[NeedFresh], all[NeedPrerequisites]
		all[NeedFresh] = func(p Plan) error {
			ev.Unmet, ev.Workloads, ev.Owner, ev.Ledger, ev.Counts = &[]Unmet{}, &Workloads{}, &owner.Owner{}, &Ledger{}, &Counts{}
			return load(p)
		}
		all[NeedPrerequisites] = func(p Plan) error {
			have = *ev
			return waits(p)
		}
	})
	if err != nil || plan.Step != StepStart || have.Slot == nil || !have.Fresh {
		t.Fatalf("%v, evidence %+v, %+v", err, have, plan)
	}
	if have.Slot = nil; have != (Evidence{Fresh: true}) {
		t.Errorf("evidence of the node before: %+v", have)
	}
}
