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

// Each row of the states, and what the metric calls it.
func TestStateOf(t *testing.T) {
	intended := func(in *Input) { in.Node.Record.Deletion = &marks.Deletion{} }
	never := func(in *Input) { in.Config.Reconciliation.ExhaustedRetrySeconds = -1 }
	vanished := func(in *Input) { in.VanishedAttempt = in.NextAttempt().Number }
	local := func(in *Input) { in.LocalWorker = &LocalWorker{Attempt: in.NextAttempt()} }
	reached := map[State]bool{}
	for name, tc := range map[string]struct {
		in     Input
		state  State
		status Status
	}{
		"being deleted":                 {given(func(in *Input) { in.Node.Deleting = true }), StateNotOurs, ""},
		"not selected":                  {given(unselected), StateNotOurs, ""},
		"skipped":                       {given(skipped), StateNotOurs, ""},
		"another OS":                    {given(windows), StateNotOurs, ""},
		"a control plane":               {given(controlplane, ungated), StateNotOurs, ""},
		"never had the taint":           {given(ungated), StateNotOurs, ""},
		"verified":                      {verified(), StateVerified, StatusVerified},
		"adopted":                       {adopted(), StateVerified, StatusVerified},
		"verified, and leaving":         {verified(leaving), StateVerified, StatusVerified},
		"new":                           {given(), StateWaiting, StatusPending},
		"a gated control plane":         {given(controlplane), StateWaiting, StatusPending},
		"no checks":                     {failing(2, unchecked), StateWaiting, StatusFailed},
		"rebooted":                      {failing(2, func(in *Input) { in.Node.BootID = "b2" }), StateWaiting, StatusPending},
		"after backoff":                 {failing(2, due), StateWaiting, StatusFailed},
		"a worker":                      {given(with(pod(1))), StateVerifying, StatusVerifying},
		"a worker after failures":       {failing(2, with(pod(3))), StateVerifying, StatusVerifying},
		"a worker of a held node":       {failing(5, heldBy(GuardDryRun), with(pod(6))), StateVerifying, StatusHeld},
		"a worker that vanished":        {given(vanished), StateVerifying, StatusVerifying},
		"DaemonSet mode":                {given(local), StateVerifying, StatusVerifying},
		"held":                          {failing(5, heldBy(GuardDryRun)), StateHeld, StatusHeld},
		"held, and due":                 {failing(5, due, heldBy(GuardDryRun)), StateHeld, StatusHeld},
		"held while retries remain":     {failing(1, heldBy(GuardDryRun)), StateHeld, StatusHeld},
		"exhausted":                     {failing(5), StateExhausted, StatusFailed},
		"exhausted, and due":            {failing(5, due), StateExhausted, StatusFailed},
		"exhausted, and no other comes": {failing(5, due, never), StateExhausted, StatusFailed},
		"a deletion is intended":        {failing(5, deleting, intended), StateRemediating, StatusFailed},
		"with a worker under way":       {failing(5, deleting, intended, with(pod(6))), StateRemediating, StatusFailed},
		"switched off since":            {failing(5, intended), StateExhausted, StatusFailed},
		"a repairer was asked":          {failing(5, asked), StateRemediating, StatusFailed},
		"backing off":                   {failing(2), StateBackingOff, StatusFailed},
		"inconclusive":                  {puzzling(2), StateBackingOff, StatusPending},
	} {
		reached[tc.state] = true
		if state, status := StateOf(tc.in, now), StatusOf(tc.in, now); state != tc.state || status != tc.status {
			t.Errorf("%s: %s %q, want %s %q", name, state, status, tc.state, tc.status)
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
