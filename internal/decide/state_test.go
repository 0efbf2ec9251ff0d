package decide

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

func asked(in *Input) {
	in.Node.RemediationConditions = []corev1.NodeCondition{{Type: "a/B", Status: corev1.ConditionTrue}}
}

// Each row of the states, what the metric calls it, and what follows for the node in a pool where it may be deleted.
func TestStateOf(t *testing.T) {
	never := func(in *Input) { in.Config.Reconciliation.ExhaustedRetrySeconds = -1 }
	vanished := func(in *Input) { in.Vanished.Number = in.NextAttempt().Number }
	local := func(in *Input) { in.LocalWorker = &LocalWorker{Attempt: in.NextAttempt()} }
	dry := func(in *Input) { in.Config.NodeManagement.Remediation.DryRun = true }
	others := func(in *Input) { in.Checks = "c2" }
	opened := func(in *Input) { in.Node.Gated, in.GateOpenSeen = false, now }
	reached := map[State]bool{}
	for name, tc := range map[string]struct {
		in     Input
		state  State
		status Status
		step   Step
		reason string // of the condition
	}{
		"being deleted":             {given(func(in *Input) { in.Node.Deleting = true }), StateNotOurs, "", StepNone, ""},
		"not selected":              {given(unselected), StateNotOurs, "", StepNone, ""},
		"skipped":                   {given(skipped), StateNotOurs, "", StepNone, ""},
		"another OS":                {given(windows), StateNotOurs, "", StepNone, marks.ReasonUnsupportedOS},
		"a control plane":           {given(controlplane, ungated), StateNotOurs, "", StepNone, ""},
		"a verified control plane":  {verified(controlplane), StateNotOurs, "", StepNone, marks.ReasonChecksPassed},
		"virtual":                   {given(virtual, ungated), StateNotOurs, "", StepNone, ""},
		"never had the taint":       {given(ungated), StateNotOurs, "", StepNone, ""},
		"opened by another writer":  {given(opened), StateNotOurs, "", StepNone, marks.ReasonGateRemoved},
		"verified":                  {verified(), StateVerified, StatusVerified, StepNone, marks.ReasonChecksPassed},
		"adopted":                   {adopted(), StateVerified, StatusVerified, StepNone, ""},
		"verified, and leaving":     {verified(leaving), StateVerified, StatusVerified, StepNone, marks.ReasonChecksPassed},
		"new":                       {given(), StateWaiting, StatusPending, StepStart, ""},
		"its kubelet is gone":       {given(lost), StateWaiting, StatusPending, StepNone, marks.ReasonWaitingForPrerequisites},
		"leaving":                   {given(leaving), StateWaiting, StatusPending, StepNone, marks.ReasonWaitingForPrerequisites},
		"lost, past its deadline":   {given(missedDeadline, lost), StateWaiting, StatusPending, StepNone, marks.ReasonDeadlineExceeded},
		"a gated control plane":     {given(controlplane), StateWaiting, StatusPending, StepStart, ""},
		"no checks":                 {failing(2, unchecked), StateWaiting, StatusFailed, StepRecord, ""},
		"label removed":             {verified(unlabelled), StateWaiting, StatusPending, StepStart, ""},
		"verified, and rebooted":    {verified(rebootedTo("b2")), StateWaiting, StatusPending, StepStart, ""},
		"rebooted":                  {failing(2, rebootedTo("b2")), StateWaiting, StatusPending, StepStart, ""},
		"held, and rebooted":        {failing(5, deleting, heldBy(GuardDryRun), rebootedTo("b2")), StateWaiting, StatusHeld, StepStart, ""},
		"rebooted, onReboot off":    {failing(5, deleting, rebootedTo("b2"), notOnReboot), StateWaiting, StatusPending, StepStart, ""},
		"other checks, and due":     {failing(2, due, others), StateWaiting, StatusPending, StepStart, ""},
		"after backoff":             {failing(2, due), StateWaiting, StatusFailed, StepStart, marks.ReasonChecksFailed},
		"a request is pending":      {failing(2, requestUnderWay), StateWaiting, StatusFailed, StepStart, marks.ReasonChecksFailed},
		"a worker":                  {given(with(pod(1))), StateVerifying, StatusVerifying, StepNone, marks.ReasonVerifying},
		"a worker after failures":   {failing(2, with(pod(3))), StateVerifying, StatusVerifying, StepNone, marks.ReasonVerifying},
		"a worker of a held node":   {failing(5, deleting, heldBy(GuardDryRun), with(pod(6))), StateVerifying, StatusHeld, StepNone, marks.ReasonRemediationHeld},
		"a worker that passed":      {given(with(pod(1, ended(attempt.Passed)))), StateVerifying, StatusVerifying, StepRecord, ""},
		"a worker that vanished":    {given(vanished), StateVerifying, StatusVerifying, StepRecord, ""},
		"DaemonSet mode":            {given(local), StateVerifying, StatusVerifying, StepNone, marks.ReasonVerifying},
		"held":                      {failing(5, deleting, dry, heldBy(GuardDryRun)), StateHeld, StatusHeld, StepNone, marks.ReasonRemediationHeld},
		"held, and due":             {failing(5, deleting, dry, due, heldBy(GuardDryRun)), StateHeld, StatusHeld, StepStart, marks.ReasonRemediationHeld},
		"held, and no guard holds":  {failing(5, deleting, heldBy(GuardDryRun)), StateHeld, StatusHeld, StepDelete, marks.ReasonRemediationHeld},
		"held while retries remain": {failing(1, deleting, heldBy(GuardControlProbe)), StateHeld, StatusHeld, StepNone, marks.ReasonRemediationHeld},
		"held, retries, and due":    {failing(1, deleting, due, heldBy(GuardControlProbe)), StateHeld, StatusHeld, StepStart, marks.ReasonRemediationHeld},
		"held, switched off since":  {failing(5, heldBy(GuardDryRun)), StateHeld, StatusHeld, StepRecord, ""},
		"exhausted":                 {failing(5), StateExhausted, StatusFailed, StepNone, marks.ReasonRetriesExhausted},
		"exhausted, and due":        {failing(5, due), StateExhausted, StatusFailed, StepStart, marks.ReasonRetriesExhausted},
		"no other attempt comes":    {failing(5, due, never), StateExhausted, StatusFailed, StepNone, marks.ReasonRetriesExhausted},
		"exhausted, to be deleted":  {failing(5, deleting), StateExhausted, StatusFailed, StepDelete, marks.ReasonRetriesExhausted},
		"a guard holds":             {failing(5, deleting, dry), StateExhausted, StatusFailed, StepRecord, marks.ReasonRetriesExhausted},
		"to be confirmed":           {failing(5, deleting, unprobed), StateExhausted, StatusFailed, StepStart, marks.ReasonRetriesExhausted},
		"its stuck worker is gone":  {stuckBefore(0), StateExhausted, StatusFailed, StepStart, marks.ReasonRetriesExhausted},
		"switched off since":        {failing(5, intended), StateExhausted, StatusFailed, StepRecord, ""},
		"a deletion is intended":    {failing(5, deleting, intended), StateRemediating, StatusFailed, StepDelete, marks.ReasonRetriesExhausted},
		"intended, and leaving":     {failing(5, deleting, intended, leaving), StateRemediating, StatusFailed, StepNone, marks.ReasonRetriesExhausted},
		"with a worker under way":   {failing(5, deleting, intended, with(pod(6))), StateRemediating, StatusFailed, StepRecord, marks.ReasonRetriesExhausted},
		"a repairer was asked":      {failing(5, asked), StateRemediating, StatusFailed, StepNone, marks.ReasonRetriesExhausted},
		"asked, and due":            {failing(5, asked, due), StateRemediating, StatusFailed, StepStart, marks.ReasonRetriesExhausted},
		"backing off":               {failing(2), StateBackingOff, StatusFailed, StepNone, marks.ReasonChecksFailed},
		"inconclusive":              {puzzling(2), StateBackingOff, StatusPending, StepNone, marks.ReasonWorkerInconclusive},
		"other checks":              {failing(2, others), StateBackingOff, StatusPending, StepNone, marks.ReasonWorkerInconclusive},
		"a request comes":           {failing(2, requests("a")), StateBackingOff, StatusFailed, StepRecord, ""},
	} {
		reached[tc.state] = true
		if state, status := StateOf(tc.in, now), StatusOf(tc.in, now); state != tc.state || status != tc.status {
			t.Errorf("%s: %s %q, want %s %q", name, state, status, tc.state, tc.status)
		}
		if plan, _ := ask(t, tc.in, pool()); plan.Step != tc.step || reasonOf(plan.Condition) != tc.reason {
			t.Errorf("%s: %q, condition %q, want %q, %q", name, plan.Step, reasonOf(plan.Condition), tc.step, tc.reason)
		}
	}
	for _, s := range States() {
		if !reached[s] {
			t.Errorf("%s is in no row", s)
		}
	}
	if len(reached) != len(States()) {
		t.Errorf("%d states are listed, %d in the rows", len(States()), len(reached))
	}
	for _, s := range statusOf {
		if !slices.Contains(Statuses(), s) {
			t.Errorf("%q is not listed", s)
		}
	}
}

// Nothing is done for a node that is quiet. So nothing may be left to do for it: its condition must show what its record
// says. look is when time alone gives a reason to verify it again.
func TestQuiet(t *testing.T) {
	shown := func(in *Input) {
		c := verifiedCondition(*in)
		in.Node.Condition = &corev1.NodeCondition{Type: marks.ConditionType, Status: c.Status, Reason: c.Reason, Message: c.Message}
	}
	suspects := func(in *Input) {
		in.Profile.SuspectConditions = []config.SuspectCondition{{Type: "KernelDeadlock", Status: corev1.ConditionTrue, ForSeconds: 60}}
	}
	hourly := func(in *Input) {
		in.Config.NodeManagement.Reverify.Interval.Duration = time.Hour
		in.Node.Record.VerifiedTime = &now
	}
	locked := func(in *Input) {
		in.Node.Conditions = []corev1.NodeCondition{{Type: "KernelDeadlock", Status: corev1.ConditionTrue}}
	}
	for name, tc := range map[string]struct {
		in    Input
		quiet bool
		look  bool
	}{
		"verified, and the condition shows it":  {in: verified(shown), quiet: true},
		"adopted":                               {in: adopted(), quiet: true},
		"never had the taint":                   {in: given(ungated), quiet: true},
		"not selected":                          {in: given(unselected), quiet: true},
		"verifyUntainted, not selected":         {in: given(ungated, verifyUntainted, unselected), quiet: true},
		"verifyUntainted":                       {in: given(ungated, verifyUntainted)},
		"only our condition is left":            {in: given(ungated, conditioned)},
		"the condition of another installation": {in: verified(unselected, conditioned), quiet: true},
		"may be suspect":                        {in: verified(shown, suspects), quiet: true},
		"will be suspect":                       {in: verified(shown, suspects, locked), quiet: true, look: true},
		"verified again by age":                 {in: verified(hourly, shown), quiet: true, look: true},
		"the condition is missing":              {in: verified()},
		"the condition shows another pass":      {in: verified(shown, func(in *Input) { in.Node.Condition.Message = "passed" })},
		"somebody removed the record":           {in: verified(shown, func(in *Input) { in.Node.HasRecord, in.Node.Record = false, marks.Record{} })},
		"it failed":                             {in: failing(2)},
		"new":                                   {in: given()},
		"a request":                             {in: verified(shown, requests("a"))},
		"a condition asks for its remediation":  {in: verified(shown, asked)},
		"the last attempt was inconclusive":     {in: verified(shown, func(in *Input) { in.Node.Record.LastOutcome = attempt.Inconclusive })},
	} {
		look, quiet := Quiet(tc.in, now)
		if quiet != tc.quiet || (look > 0) != tc.look {
			t.Errorf("%s: quiet %t, look after %s", name, quiet, look)
		}
		if plan, _ := ask(t, tc.in, pool()); quiet && (plan.Step != StepNone || plan.ClearCondition || len(plan.Events) > 0 ||
			plan.Condition != nil && !plan.Condition.Same(tc.in.Node.Condition) || plan.RequeueAfter != look) {
			t.Errorf("%s: quiet, and its plan is %+v", name, plan)
		}
	}
}
