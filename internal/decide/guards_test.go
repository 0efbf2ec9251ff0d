package decide

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// Guards without a cost are evaluated first. The most expensive evidence is loaded only if no other guard holds.
func TestGuardsAreOrderedByCost(t *testing.T) {
	dearest := 0
	seen := map[string]bool{}
	for _, g := range Guards() {
		cost := 0
		for _, n := range g.Needs {
			at := slices.Index(needs, n)
			if at < 0 {
				t.Fatalf("guard %s needs %q, which is not a need", g.Name, n)
			}
			cost = max(cost, at)
		}
		if cost < dearest {
			t.Errorf("guard %s, which needs %v, is asked after a dearer one", g.Name, g.Needs)
		}
		dearest = cost
		if at := g.Name + fmt.Sprint(g.Needs); g.Name == "" || g.About == "" || seen[at] {
			t.Errorf("guard %q: %q", g.Name, g.About)
		} else {
			seen[at] = true
		}
	}
	names := slices.Clone(GuardNames())
	slices.Sort(names)
	if len(names) < 10 || len(slices.Compact(names)) != len(GuardNames()) {
		t.Errorf("the metric would have a series twice: %v", GuardNames())
	}
	if last := Guards()[len(Guards())-1].Name; last != GuardDryRun {
		t.Errorf("the last guard is %s: a dry run would hold what another guard holds", last)
	}
}

// A guard is evaluated with exactly the evidence that it declares. It must not read anything that may not have been
// loaded.
func TestGuardsUseNoMoreThanTheyNeed(t *testing.T) {
	full := pool()
	for _, g := range Guards() {
		if g.holds == nil {
			continue
		}
		in, ev := exhausted(), Evidence{}
		for _, n := range g.Needs {
			full.load(&in, &ev, n)
		}
		if held := g.holds(in, ev, now); held != "" {
			t.Errorf("%s: %s", g.Name, held)
		}
	}
}

// has knows every need. It must not report evidence as loaded that was never loaded.
func TestEveryNeedCanBeLoaded(t *testing.T) {
	for _, n := range needs {
		in, ev := exhausted(), Evidence{}
		if ev.has(n) {
			t.Errorf("%s: there before it is loaded", n)
		}
		pool().load(&in, &ev, n)
		if !ev.has(n) {
			t.Errorf("%s: not there after it is loaded", n)
		}
	}
}

// The cheapest evidence comes first. The cost of a node that a guard without a cost holds must not depend on the size
// of the cluster.
func TestEvidenceIsAskedForByCost(t *testing.T) {
	_, asked := ask(t, exhausted(), pool())
	at := slices.Index(asked, NeedFresh)
	if want := []Need{NeedLedger, NeedCounts, NeedWorkloads, NeedOwner}; at < 0 || !slices.Equal(asked[:at], want) ||
		!slices.Equal(asked[at+1:], want) {
		t.Errorf("asked for %v", asked)
	}
	for name, in := range map[string]Input{
		"do-not-delete":     exhausted(optOut),
		"a control plane":   exhausted(controlplane),
		"once verified":     exhausted(verifiedOnce),
		"lately recorded":   failing(4, deleting),
		"nothing to delete": exhausted(func(in *Input) { in.Config.NodeManagement.DeleteFailedNodes = false }),
	} {
		if _, asked = ask(t, in, pool()); len(asked) > 0 {
			t.Errorf("%s: asked for %v", name, asked)
		}
	}
}

func TestStatusOf(t *testing.T) {
	for name, tc := range map[string]struct {
		in   Input
		want Status
	}{
		"new":                 {given(), StatusPending},
		"worker":              {given(with(pod(1))), StatusVerifying},
		"verified":            {verified(), StatusVerified},
		"not ours":            {given(ungated), ""},
		"skipped":             {given(skipped), ""},
		"being deleted":       {failing(5, func(in *Input) { in.Node.Deleting = true }), ""},
		"between retries":     {failing(1), StatusFailed},
		"a recorded worker":   {failing(1, with(pod(1, ended(attempt.Failed)))), StatusFailed},
		"exhausted":           {failing(5), StatusFailed},
		"held":                {failing(5, heldBy(GuardDryRun)), StatusHeld},
		"inconclusive":        {puzzling(1), StatusPending},
		"gated control plane": {given(controlplane), StatusPending},
		"released":            {verified(controlplane), ""},
	} {
		if got := StatusOf(tc.in, now); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		if got := StatusOf(tc.in, now); got != "" && !slices.Contains(Statuses(), got) {
			t.Errorf("%s: %q is not listed", name, got)
		}
	}
}

// A settled node counts as verified at any time, because a scrape only counts it until it changes.
func TestSettled(t *testing.T) {
	interval := func(in *Input) {
		in.Config.NodeManagement.Reverify.Interval.Duration = time.Hour
	}
	suspects := func(in *Input) { in.Profile.SuspectConditions = []config.SuspectCondition{{Type: "KernelDeadlock"}} }
	requested := func(in *Input) { in.Node.Requested = "r1" }
	answered := func(in *Input) { in.Node.Requested, in.Node.Record.Request = "r1", "r1" }
	for name, tc := range map[string]struct {
		in   Input
		want bool
	}{
		"verified": {verified(), true}, "adopted": {adopted(), true}, "answered": {verified(answered), true}, "leaving": {verified(leaving), true},
		"new": {given(), false}, "gated again": {verified(gated), false}, "label removed": {verified(unlabelled), false}, "skipped": {verified(skipped), false},
		"not selected": {verified(unselected), false}, "failed since": {failing(1), false}, "requested": {verified(requested), false}, "by age": {verified(interval), false},
		"may be suspect": {verified(suspects), false}, "suspect": {verified(func(in *Input) { in.Node.Record.Suspicion = &marks.Suspicion{Time: now} }), false},
		"rebooted": {verified(func(in *Input) { in.Node.BootID = "b2" }), false}, "being deleted": {verified(func(in *Input) { in.Node.Deleting = true }), false},
	} {
		if got := Settled(tc.in); got != tc.want || SummaryOf(tc.in).Settled != tc.want {
			t.Errorf("%s: settled is %v", name, got)
		}
		for _, at := range []time.Duration{-time.Hour, 0, time.Hour, 1000 * time.Hour} {
			if status := StatusOf(tc.in, now.Add(at)); tc.want && status != StatusVerified {
				t.Errorf("%s: the status is %q after %s", name, status, at)
			}
		}
	}
}

// Deletions from before the start of a ledger are unknown. So the limits hold until the ledger covers the time that
// they look back.
func TestYoungLedgerHolds(t *testing.T) {
	window := func(d time.Duration) func(*Input) {
		return func(in *Input) { in.Config.NodeManagement.Remediation.Window.Duration = d }
	}
	dryRun := func(in *Input) { in.Config.NodeManagement.Remediation.DryRun = true }
	for name, tc := range map[string]struct {
		in   Input
		age  time.Duration
		want string
	}{
		"just begun":           {exhausted(), 0, GuardMaxDeletionsPerHour},
		"almost an hour old":   {exhausted(), time.Hour - time.Second, GuardMaxDeletionsPerHour},
		"an hour old":          {exhausted(), time.Hour, ""},
		"with a longer window": {exhausted(window(3 * time.Hour)), 2 * time.Hour, GuardMaxDeletionsPerHour},
		"a short window":       {exhausted(window(time.Minute)), 30 * time.Minute, GuardMaxDeletionsPerHour},
		"in a dry run":         {exhausted(dryRun), 0, GuardDryRun},
	} {
		plan, _ := ask(t, tc.in, pool(func(w *world) { w.ledger.CompleteSince = now.Add(-tc.age) }))
		if held := plan.Change.Record.Held; held != tc.want || (held == "") != (plan.Step == StepDelete) {
			t.Errorf("%s: %s, held by %q: %s", name, plan.Step, held, plan.Change.Record.HeldMessage)
		}
	}
}

// A pause holds before any limit is evaluated, also in a dry run.
func TestPauseHolds(t *testing.T) {
	plan, _ := ask(t, exhausted(), pool(func(w *world) { w.ledger.Paused, w.ledger.Version, w.ledger.CompleteSince = "ticket 7", "1", now }))
	r := plan.Change.Record
	if plan.Step != StepRecord || r.Held != GuardPaused || r.HeldMessage != "remediation is paused (ticket 7); to continue, run kubectl node-ready resume" {
		t.Errorf("%s: %q %q", plan.Step, r.Held, r.HeldMessage)
	}
}
