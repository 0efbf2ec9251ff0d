package decide

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// members are healthy verified nodes of a pool.
func members(n int, pool string) []Member {
	var out []Member
	for i := range n {
		out = append(out, Member{Name: fmt.Sprintf("%s-m%d", pool, i), UID: fmt.Sprintf("%s-mu%d", pool, i), Pool: pool, Control: true})
	}
	return out
}

func self(pool string) Member { return Member{Name: "n", UID: "u1", Pool: pool, Unhealthy: true} }

func probe(on string, change ...func(*workerpod.Observation)) workerpod.Observation {
	o := workerpod.Observation{Name: "probe-" + on, Node: on, Purpose: workerpod.PurposeProbe, Created: now.Add(-2 * time.Second), State: workerpod.Running}
	for _, f := range change {
		f(&o)
	}
	return o
}

func TestAttribute(t *testing.T) {
	failed := pod(1, ended(node.OutcomeFailed))
	stale := func(o *workerpod.Observation) { o.Created = failed.Created.Add(-time.Second) }
	for name, tc := range map[string]struct {
		probes  []workerpod.Observation
		fleet   []Member
		step    Step
		outcome node.Outcome
		held    string
		probeOn string // prefix of the node's name
	}{
		"asks for a probe in the pool":       {fleet: append(members(3, "other"), members(1, "pool")...), step: StepNone, probeOn: "pool-"},
		"else anywhere":                      {fleet: members(1, "other"), step: StepNone, probeOn: "other-"},
		"never on itself":                    {fleet: []Member{{Name: "n", UID: "u1", Pool: "pool", Control: true}}, step: StepRecord, outcome: node.OutcomeInconclusive, held: GuardControlProbe},
		"no verified node":                   {fleet: []Member{self("pool")}, step: StepRecord, outcome: node.OutcomeInconclusive, held: GuardControlProbe},
		"waits for the probe":                {probes: []workerpod.Observation{probe("pool-m0")}, fleet: members(2, "pool"), step: StepNone},
		"the probe passed":                   {probes: []workerpod.Observation{probe("pool-m0", ended(node.OutcomePassed))}, fleet: members(2, "pool"), step: StepRecord, outcome: node.OutcomeFailed},
		"the probe failed":                   {probes: []workerpod.Observation{probe("pool-m0", ended(node.OutcomeFailed))}, fleet: members(2, "pool"), step: StepRecord, outcome: node.OutcomeInconclusive, held: GuardControlProbe},
		"an older probe says nothing":        {probes: []workerpod.Observation{probe("pool-m0", ended(node.OutcomePassed), stale)}, fleet: members(1, "pool"), step: StepNone, probeOn: "pool-m0"},
		"an inconclusive probe, another":     {probes: []workerpod.Observation{probe("pool-m0", ended(node.OutcomeInconclusive))}, fleet: members(2, "pool"), step: StepNone, probeOn: "pool-m1"},
		"all probes inconclusive":            {probes: []workerpod.Observation{probe("pool-m0", ended(node.OutcomeInconclusive))}, fleet: members(1, "pool"), step: StepRecord, outcome: node.OutcomeInconclusive, held: GuardControlProbe},
		"one failing probe outweighs a pass": {probes: []workerpod.Observation{probe("pool-m0", ended(node.OutcomePassed)), probe("pool-m1", ended(node.OutcomeFailed))}, fleet: members(2, "pool"), step: StepRecord, outcome: node.OutcomeInconclusive, held: GuardControlProbe},
	} {
		t.Run(name, func(t *testing.T) {
			in := given(deleting, managed, with(failed))
			plan, asked := Attribute(in, failed, tc.probes, tc.fleet, now)
			if plan.Step != tc.step {
				t.Fatalf("step %s, want %s", plan.Step, tc.step)
			}
			if (asked != nil) != (tc.probeOn != "") || asked != nil && !strings.HasPrefix(asked.On.Name, tc.probeOn) {
				t.Errorf("probe %+v, want one on %q", asked, tc.probeOn)
			}
			if r := plan.Change.Record; tc.step == StepRecord && (r.LastOutcome != tc.outcome || r.Held != tc.held || (r.Attempts == 1) != (tc.outcome == node.OutcomeFailed)) {
				t.Errorf("records %s held by %q with %d spent, want %s %q", r.LastOutcome, r.Held, r.Attempts, tc.outcome, tc.held)
			}
		})
	}
}

func TestTheEndOfAnOutageIsNotHeldAgainstANode(t *testing.T) {
	failed := pod(2, ended(node.OutcomeFailed))
	in := failing(0, deleting, with(failed), func(in *Input) {
		in.Node.Record.Sequence, in.Node.Record.LastOutcome, in.Node.Record.Held = 1, node.OutcomeInconclusive, GuardControlProbe
	})
	passing := []workerpod.Observation{probe("m", ended(node.OutcomePassed))}
	plan, _ := Attribute(in, failed, passing, nil, now)
	if r := plan.Change.Record; r.Attempts != 0 || r.Held != "" || r.NextAttemptTime == nil {
		t.Errorf("the first failure after it: %+v", r)
	}
	in.Node.Record.Held = ""
	if plan, _ = Attribute(in, failed, passing, nil, now); plan.Change.Record.Attempts != 1 || !plan.Change.Record.Probed {
		t.Errorf("the next one: %+v", plan.Change.Record)
	}
}

func TestSharedOutageIsToldOnce(t *testing.T) {
	failed := pod(2, ended(node.OutcomeFailed))
	in := failing(0, deleting, with(failed), func(in *Input) {
		in.Node.Record.Sequence, in.Node.Record.LastOutcome, in.Node.Record.Held = 1, node.OutcomeInconclusive, GuardControlProbe
	})
	plan, _ := Attribute(in, failed, nil, nil, now)
	if len(plan.Events) != 0 {
		t.Errorf("told again: %+v", plan.Events)
	}
}

func TestControlProbeRotates(t *testing.T) {
	seen := map[string]bool{}
	for attempt := range int32(20) {
		_, asked := Attribute(given(deleting, managed), pod(attempt+1, ended(node.OutcomeFailed)), nil, members(5, "pool"), now)
		seen[asked.On.Name] = true
	}
	if len(seen) < 3 {
		t.Errorf("20 attempts probed on %d of 5 nodes", len(seen))
	}
}

func TestRemediate(t *testing.T) {
	exhausted := func(change ...func(*Input)) Input {
		return failing(5, append([]func(*Input){deleting, managed}, change...)...)
	}
	claim := Claim{Name: "claim-1", UID: "c1"}
	healthy := append(members(9, "pool"), self("pool"))
	deletions := func(n int, pool string, age time.Duration) []Deletion {
		var out []Deletion
		for i := range n {
			out = append(out, Deletion{Time: now.Add(-age), NodeUID: fmt.Sprintf("gone-%d", i), Pool: pool})
		}
		return out
	}
	sick := func(n int) []Member {
		fleet := append(members(10, "pool"), self("pool"))
		for i := range n - 1 {
			fleet[i].Unhealthy, fleet[i].Control = true, false
		}
		return fleet
	}
	limit := func(v intstr.IntOrString) func(*Input) {
		return func(in *Input) { in.Config.NodeManagement.Remediation.MaxUnhealthy = &v }
	}
	for name, tc := range map[string]struct {
		in     Input
		ev     Evidence
		held   string
		delete Kind
	}{
		"the NodeClaim goes":                {exhausted(), Evidence{Claim: claim, Fleet: healthy}, "", KindNodeClaim},
		"the Node goes where there is none": {failing(5, deleting), Evidence{Fleet: healthy}, "", KindNode},
		"a failed lookup deletes nothing":   {exhausted(), Evidence{Claim: Claim{Problem: "timeout"}, Fleet: healthy}, GuardNodeClaim, ""},
		"already deleting":                  {exhausted(), Evidence{Claim: Claim{Name: "claim-1", UID: "c1", Deleting: true}, Fleet: healthy}, "", ""},
		"opted out":                         {exhausted(func(in *Input) { in.Node.DoNotDelete = true }), Evidence{Claim: claim, Fleet: healthy}, GuardDoNotDelete, ""},
		"verified before":                   {exhausted(func(in *Input) { in.Node.Record.VerifiedTime = ago(time.Hour) }), Evidence{Claim: claim, Fleet: healthy}, GuardNeverVerifiedOnly, ""},
		"verified before, guard off": {exhausted(func(in *Input) {
			in.Node.Record.VerifiedTime = ago(time.Hour)
			in.Config.NodeManagement.Remediation.NeverVerifiedOnly = ptr.To(false)
		}), Evidence{Claim: claim, Fleet: healthy}, "", KindNodeClaim},
		"ordinary pods":                      {exhausted(), Evidence{Claim: claim, Fleet: healthy, Pods: []string{"a/b"}}, GuardSparePods, ""},
		"ordinary pods, guard off":           {exhausted(func(in *Input) { in.Config.NodeManagement.Remediation.SparePodsOtherThanDaemonSets = ptr.To(false) }), Evidence{Claim: claim, Fleet: healthy, Pods: []string{"a/b"}}, "", KindNodeClaim},
		"20% of 11, rounded up, is 3":        {exhausted(), Evidence{Claim: claim, Fleet: sick(3)}, "", KindNodeClaim},
		"4 of 11 are too many":               {exhausted(), Evidence{Claim: claim, Fleet: sick(4)}, GuardMaxUnhealthy, ""},
		"a number":                           {exhausted(limit(intstr.FromInt32(4))), Evidence{Claim: claim, Fleet: sick(4)}, "", KindNodeClaim},
		"zero":                               {exhausted(limit(intstr.FromInt32(0))), Evidence{Claim: claim, Fleet: healthy}, GuardMaxUnhealthy, ""},
		"other pools do not count":           {exhausted(), Evidence{Claim: claim, Fleet: append(sick(3), Member{UID: "x", Pool: "other", Unhealthy: true})}, "", KindNodeClaim},
		"deletions do not shrink the pool":   {exhausted(), Evidence{Claim: claim, Fleet: healthy, Deletions: deletions(3, "pool", time.Minute)}, GuardMaxUnhealthy, ""},
		"nor count after the window":         {exhausted(), Evidence{Claim: claim, Fleet: healthy, Deletions: deletions(3, "pool", 61*time.Minute)}, "", KindNodeClaim},
		"deletions of other pools":           {exhausted(), Evidence{Claim: claim, Fleet: healthy, Deletions: deletions(3, "other", time.Minute)}, "", KindNodeClaim},
		"without a pool all nodes count":     {failing(5, deleting), Evidence{Fleet: append(sick(4), Member{})}, GuardMaxUnhealthy, ""},
		"ten deletions in an hour":           {exhausted(), Evidence{Claim: claim, Fleet: healthy, Deletions: deletions(10, "other", 59*time.Minute)}, GuardMaxDeletionsPerHour, ""},
		"nine deletions in an hour":          {exhausted(), Evidence{Claim: claim, Fleet: healthy, Deletions: deletions(9, "other", 59*time.Minute)}, "", KindNodeClaim},
		"its own entry does not count twice": {exhausted(func(in *Input) { in.Config.NodeManagement.Remediation.MaxDeletionsPerHour = ptr.To(int32(1)) }), Evidence{Claim: claim, Fleet: healthy, Deletions: []Deletion{{Time: now, NodeUID: "u1", Pool: "pool"}}}, "", KindNodeClaim},
		"no deletions allowed":               {exhausted(func(in *Input) { in.Config.NodeManagement.Remediation.MaxDeletionsPerHour = ptr.To(int32(0)) }), Evidence{Claim: claim, Fleet: healthy}, GuardMaxDeletionsPerHour, ""},
		"a ledger that cannot be read":       {exhausted(), Evidence{Claim: claim, Fleet: healthy, LedgerProblem: "not JSON"}, GuardMaxDeletionsPerHour, ""},
		"dry run":                            {exhausted(func(in *Input) { in.Config.NodeManagement.Remediation.DryRun = true }), Evidence{Claim: claim, Fleet: healthy}, GuardDryRun, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Remediate(tc.in, tc.ev, now)
			if got.Delete != tc.delete || got.Plan.Change.Record.Held != tc.held {
				t.Fatalf("deletes %q, held by %q (%s); want %q, %q", got.Delete, got.Plan.Change.Record.Held, got.Plan.Change.Record.HeldMessage, tc.delete, tc.held)
			}
			if tc.held != "" && (len(got.Plan.Events) != 1 || got.Plan.Change.Gate != node.GateClose) {
				t.Errorf("a new hold must be told once and keep the gate closed: %+v", got.Plan)
			}
			if tc.delete == KindNodeClaim && (got.Name != "claim-1" || got.UID != "c1") || tc.delete == KindNode && got.UID != "u1" {
				t.Errorf("deletes %s with UID %s", got.Name, got.UID)
			}
		})
	}
}

func TestHoldIsToldOnce(t *testing.T) {
	in := failing(5, deleting, managed, func(in *Input) { in.Node.DoNotDelete = true })
	first := Remediate(in, Evidence{}, now)
	in.Node.Record = first.Plan.Change.Record
	again := Remediate(in, Evidence{}, now)
	if again.Plan.Step != StepNone || len(again.Plan.Events) != 0 {
		t.Errorf("the same hold was written or told again: %+v", again.Plan)
	}
	if c := again.Plan.Condition; c == nil || c.Reason != node.ReasonRemediationHeld || !strings.Contains(c.Message, GuardDoNotDelete) {
		t.Errorf("condition %+v", c)
	}
}

func TestMemberOf(t *testing.T) {
	for name, tc := range map[string]struct {
		in                 Input
		unhealthy, control bool
	}{
		"new":                      {given(), false, false},
		"verified":                 {verified(), false, true},
		"verified, not ready":      {verified(func(in *Input) { in.Node.Ready = false }), false, false},
		"verified, tainted again":  {verified(func(in *Input) { in.Node.Gated = true }), false, false},
		"failed":                   {failing(1), true, false},
		"failed, now inconclusive": {failing(1, func(in *Input) { in.Node.Record.LastOutcome = node.OutcomeInconclusive }), true, false},
		"passed after failures":    {verified(func(in *Input) { in.Node.Record.Attempts = 2 }), false, true},
	} {
		if m := MemberOf(tc.in.Node); m.Unhealthy != tc.unhealthy || m.Control != tc.control {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

func TestStatusOf(t *testing.T) {
	for name, tc := range map[string]struct {
		in   Input
		want Status
	}{
		"new":             {given(), StatusPending},
		"worker":          {given(with(pod(1))), StatusVerifying},
		"verified":        {verified(), StatusVerified},
		"not ours":        {given(func(in *Input) { in.Node.Gated = false }), ""},
		"skipped":         {given(func(in *Input) { in.Node.Skip = true }), ""},
		"between retries": {failing(1), StatusFailed},
		"exhausted":       {failing(5), StatusFailed},
		"held":            {failing(5, func(in *Input) { in.Node.Record.Held = GuardDryRun }), StatusHeld},
		"inconclusive":    {failing(0, func(in *Input) { in.Node.Record.LastOutcome = node.OutcomeInconclusive }), StatusPending},
	} {
		if got := StatusOf(tc.in, now); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
