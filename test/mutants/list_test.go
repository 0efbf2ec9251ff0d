package mutants

const (
	guards      = "internal/decide/guards.go"
	condition   = "internal/decide/remediationcondition.go"
	attribution = "internal/decide/attribution.go"
	eligible    = "internal/decide/eligible.go"
	record      = "internal/decide/record.go"
	admission   = "internal/decide/admission.go"
	served      = "internal/decide/worked.go"
	deadline    = "internal/decide/deadline.go"
	takenBack   = "internal/decide/takenback.go"
	ruled       = "internal/rules/rule/rule.go"
	planned     = "internal/rules/rule/plan.go"
	overlap     = "internal/rules/rule/overlap.go"
	serving     = "internal/rules/serving.go"
	act         = "internal/controller/node/act.go"
	remediates  = "internal/controller/remediation/reconcile.go"
	entered     = "internal/controller/remediation/ledger.go"
	patched     = "internal/marks/condition.go"
	recorded    = "internal/marks/record.go"
	backfills   = "internal/controller/backfill/backfill.go"
	adoption    = "internal/controller/adoption/adoption.go"
	remedy      = "internal/decide/remedy.go"
	exhausted   = "internal/decide/exhausted.go"
	states      = "internal/decide/state.go"
	verifying   = "internal/decide/verifying.go"
	waiting     = "internal/decide/waiting.go"
	pods        = "internal/decide/pods.go"
	all         = "."
)

// mutants are changes that would do harm, the worst first: deletions, then the gate, then workers, then rules.
var mutants = []mutant{
	// A node or its owner is deleted that must not be.
	{"an opt-out is ignored", guards, "case !in.Node.DoNotDelete:", "case in.Node.DoNotDelete:", all},
	{"a verified node is deleted", guards, "NeverVerifiedOnly || !r.MayHaveVerified()", "NeverVerifiedOnly || r.MayHaveVerified()", all},
	{"a pause is ignored", guards, `ev.Ledger.Paused == "" {`, `ev.Ledger.Paused != "" {`, all},
	{"one deletion an hour too many", guards, "if n < limit {", "if n <= limit {", all},
	{"a young ledger is trusted", guards, "now.Before(known) && !r.DryRun", "now.Before(known) && r.DryRun", all},
	{"one unhealthy node too many", guards, "if n.bad <= most {", "if n.bad <= most+1 {", all},
	{"a share is rounded down", guards, "GetScaledValueFromIntOrPercent(limit, n.total, true)", "GetScaledValueFromIntOrPercent(limit, n.total, false)", all},
	{"one more in flight", guards, "if len(names) < limit {", "if len(names) <= limit {", all},
	{"a dry run deletes", guards, "if !in.Config.NodeManagement.Remediation.DryRun {", "if in.Config.NodeManagement.Remediation.DryRun {", all},
	{"a deletion on cached evidence", remedy, "\n	case !ev.Fresh:", "\n	case ev.Fresh:", all},
	{"old evidence counts", exhausted, "now.Sub(*at) < maxFailureAge", "now.Sub(*at) > maxFailureAge", all},
	{"no control probe is asked for", exhausted, "(!needsControlProbe(in) || r.Probed)", "(needsControlProbe(in) || r.Probed)", all},
	{"a probe of other checks counts", attribution, "probe.Attempt.Basis.Checks != in.Checks", "probe.Attempt.Basis.Checks == in.Checks", all},
	{"a probe runs on the node itself", attribution, "m.UID == in.Node.UID", "m.UID != in.Node.UID", all},
	{"a probe runs on an excluded node", attribution, "m.Excluded ||", "!m.Excluded ||", all},
	{"the ledger is not written", remediates, "Tracker.Now(), decidedOn); err != nil {", "Tracker.Now(), decidedOn); err == nil {", "TestRemediationWritesDisturbed"},
	{"old evidence is acted on", remediates, "context.WithTimeoutCause(ctx, r.EvidenceFor, errOld)", "context.WithTimeoutCause(ctx, time.Hour, errOld)", "TestDeletionOnOldEvidence"},
	{"failures of other checks count", states, "|| r.Checks != in.Checks {", "|| r.Checks == in.Checks {", all},
	{"a condition is set on an old failure", condition, "if !carriesCondition(in) && (!failureConfirmed(in, now) ||", "if carriesCondition(in) && (!failureConfirmed(in, now) ||", all},
	{"a condition stays under a guard", condition, `return first == held{}, &first`, `return first == held{} || carriesCondition(in), &first`, all},
	{"another program's condition is overwritten", condition, "c.Reason != marks.ReasonVerificationFailed", "c.Reason == marks.ReasonVerificationFailed", all},
	{"a condition is not entered in the ledger", remediates, "err := r.enter(ctx, in, plan, now, ev.Ledger.Version)", "err := error(nil)", "TestConditionIsSetOnce"},
	{"a condition of another status is carried", condition, "return c.Type == want.Type && c.Status == want.Status", "return c.Type == want.Type", all},
	{"a condition of another status need not be set", condition, "carries = c.Status == want.Status", "carries = true", all},
	{"a condition is set on a node that changed", patched, `n.ResourceVersion}, c)`, `""}, c)`, all},
	{"a condition is removed from a node that changed", patched, `n.ResourceVersion}, all...)`, `""}, all...)`, all},
	{"a refused removal ends the look", remediates, `kinds, err)}, nil`, `kinds, err)}, err`, "TestConditionTypes"},
	{"a refused removal is not retried", remediates, "errors.Join(stays, r.act(", "errors.Join(r.act(", "TestFailingRemoval"},
	{"a condition is entered at each setting", entered, "if !e.Repeats(earlier, passed) {", "if e.Kind == marks.KindCondition || !e.Repeats(earlier, passed) {", "TestPause"},
	{"a control plane counts as any node", eligible, "in.Node.ControlPlane && !in.Config.NodeManagement.IncludeControlPlane", "in.Node.ControlPlane && in.Config.NodeManagement.IncludeControlPlane", all},
	{"the deadline is the controller's time", deadline, "grace.After(at)", "grace.Before(at)", all},

	// A node that worked is closed for what is not its own fault.
	{"the first failure closes a node in service", served, "return !spent.first && before.LastOutcome == attempt.Failed && before.Probed", "return before.LastOutcome != attempt.Passed || true", all},
	{"a failure without a probe closes a node in service", served, "before.LastOutcome == attempt.Failed && before.Probed", "before.LastOutcome == attempt.Failed", all},
	{"a node in service needs no probe", served, "return worked(in) && (inService(in) || !shown)", "return worked(in) && !inService(in) && !shown", all},
	{"a probe of another pool closes a gate", attribution, "if inGroup && m.Pool", "if !inGroup && m.Pool", all},
	{"a probe on the node itself counts", attribution, ", probe.Node == in.Node.Name:", ":", all},
	{"the deadline of a shared outage runs", deadline, "if !ok || SharesFailure(in) ||", "if !ok ||", all},

	// The gate opens, or stays closed, wrongly.
	{"a reboot does not count", eligible, "\n\t\totherBoot(in.Node.Record.BootID, in.Node.BootID)", "\n\t\t!otherBoot(in.Node.Record.BootID, in.Node.BootID)", all},
	{"a pass of another boot counts", record, "if otherBoot(a.Basis.BootID, in.Node.BootID) {", "if !otherBoot(a.Basis.BootID, in.Node.BootID) {", all},
	{"admission taints the control plane", admission, "if !Eligible(in) || protected(in)", "if !Eligible(in) || !protected(in)", all},
	{"a busy node is tainted late", admission, `len(taints) == 0 || w.occupied() != ""`, `len(taints) == 0 || w.occupied() == ""`, all},
	{"a late taint evicts", admission, "if t.Effect == corev1.TaintEffectNoExecute {", "if t.Effect != corev1.TaintEffectNoExecute {", all},
	{"any node is tainted late", backfills, "if !ok {", "if ok {", "TestBackfill"},
	{"a soft taint makes a worker critical", act, "Gated: d.in.Closed(),", "Gated: d.in.Node.Gated,", "TestWorkerOnASoftlyGatedNode"},
	{"a pass under a soft taint does not count", verifying, "in.Closed() && !b.Gated", "in.Node.Gated && !b.Gated", all},
	{"a soft taint keeps a strict one from a new node", admission, "case in.Closed(), f.Labelled", "case f.Gated, f.Labelled", all},
	{"a record that nobody can read is written", recorded, "LastTransitionTime.UTC(); encodableTime(&at)", "LastTransitionTime.UTC(); true", all},
	{"any node is adopted", adoption, "if !decide.Adoptable(in) {", "if decide.Adoptable(in) {", "TestAdoption"},

	// Workers.
	{"a worker starts beside another", waiting, "if last := occupyingWorker(in); last != nil {", "if last := occupyingWorker(in); last == nil {", all},
	{"a worker runs without its devices", waiting, "!in.Closed() || !offered ||", "!in.Closed() || offered ||", all},
	{"a worker starts on a stale node", waiting, "if !ev.Fresh {\n\t\tp.Need = NeedFresh // a stale cache may lack the last record", "if !ev.Fresh && false {\n\t\tp.Need = NeedFresh // a stale cache may lack the last record", all},
	{"no slot is waited for", waiting, "case !*ev.Slot:", "case *ev.Slot:", all},
	{"retries do not end", served, "attempts >= in.Config.Reconciliation.MaxRetries && !inService", "attempts > in.Config.Reconciliation.MaxRetries+1 && !inService", all},
	{"another writer is fought", takenBack, `if why == "" || !now.Before(at) {`, `if why != "" || now.Before(at) {`, all},
	{"our own taint counts as another writer's", takenBack, "	if NeedsVerification(in, now) {", "	if !NeedsVerification(in, now) {", all},
	{"a worker that runs counts as ended", pods, "if pod.HasRunningContainer || !pod.Occupies", "if !pod.HasRunningContainer || !pod.Occupies", all},
	{"a pod of another program is ours", act, "case !workerpod.Made(have, r.Pods.Namespace, t):", "case false:", "TestRefusedWorker"},

	// Rules.
	{"an invalid rule selects nodes", ruled, `r.Invalid == "" && r.Concerns`, `r.Invalid != "" && r.Concerns`, all},
	{"an absent condition is met", ruled, "if status == c.RequiredStatus {", "if status != c.RequiredStatus {", all},
	{"a stale condition counts", ruled, "staleAfter).Sub(now); left <= 0", "staleAfter).Sub(now); left >= 0", all},
	{"a deleted rule holds nodes", planned, `if r.Deleting || r.Invalid != ""`, `if !r.Deleting || r.Invalid != ""`, all},
	{"a dry run of a rule overrules another", overlap, "!earlier.DryRun && earlier.Invalid", "earlier.DryRun && earlier.Invalid", all},
	{"rules are served beside the node-readiness-controller", serving, "case l.renewed && age < renewedFor:", "case !l.renewed && age < renewedFor:", "TestStandBack"},
	{"the younger rule wins", ruled, "a.Created.Compare(b.Created)", "b.Created.Compare(a.Created)", all},
}
