package decide

import (
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// planRule holds for every plan that needs no more evidence.
type planRule struct {
	says  string
	holds func(Input, Evidence, Plan) bool
}

// BrokenRules names the rules that a plan breaks. The model applies it to every decision.
func BrokenRules(in Input, ev Evidence, p Plan, now time.Time) (broken []string) {
	for _, rule := range planRules(now) {
		if !rule.holds(in, ev, p) {
			broken = append(broken, rule.says)
		}
	}
	return broken
}

func planRules(now time.Time) []planRule {
	return []planRule{
		{"a deletion is decided on a fresh node with the evidence of every guard", func(_ Input, ev Evidence, p Plan) bool {
			return p.Step != StepDelete || ev.Fresh && !slices.ContainsFunc(Guards(), func(g Guard) bool {
				return g.holds != nil && slices.ContainsFunc(g.Needs, func(n Need) bool { return !ev.has(n) })
			})
		}},
		{"a deletion is of a node that may be deleted", func(in Input, _ Evidence, p Plan) bool {
			r, c := in.Node.Record, in.Config
			return p.Step != StepDelete || c.NodeManagement.DeleteFailedNodes && !in.Node.DoNotDelete && !protected(in) && !in.Node.Skip && in.Selected && !in.Node.Deleting && in.Node.Leaving == "" &&
				!c.NodeManagement.Remediation.DryRun && (!r.MayHaveVerified() || !*c.NodeManagement.Remediation.NeverVerifiedOnly)
		}},
		{"a deletion follows a fresh failure of an exhausted node in this boot", func(in Input, _ Evidence, p Plan) bool {
			r, c := in.Node.Record, in.Config
			exhausted := r.LastOutcome == attempt.Failed && r.Attempts >= c.Reconciliation.MaxRetries && recent(r.LastTime, now) && (r.Probed || !probesBeforeRemediation(c)) && !otherBoot(r.BootID, in.Node.BootID)
			return p.Step != StepDelete || exhausted
		}},
		{"a node past its deadline counts as failed, unless a guard holds its deletion or its retries are exhausted", func(in Input, _ Evidence, p Plan) bool {
			at, ok := verificationDeadline(in, now)
			if !ok || now.Before(at) || p.Condition == nil || !Eligible(in) || !NeedsVerification(in, now) || in.DryRunDone {
				return true
			}
			return p.Condition.Reason == marks.ReasonDeadlineExceeded || p.Condition.Reason == marks.ReasonRemediationHeld || p.Condition.Reason == marks.ReasonRetriesExhausted
		}},
		{"a deletion waits for the nodes of those before, and spares a NodeClaim that opts out", func(in Input, ev Evidence, p Plan) bool {
			if p.Step != StepDelete {
				return true
			}
			before := 0
			for _, d := range ev.Counts.inFlight {
				if d.uid != in.Node.UID && slices.ContainsFunc(d.pools, func(pool string) bool { return samePool(in, pool) }) {
					before++
				}
			}
			return before < int(*in.Config.NodeManagement.Remediation.MaxInFlight) && ev.Owner.OptedOut == ""
		}},
		{"no attempt is recorded while a deletion is intended", func(in Input, _ Evidence, p Plan) bool {
			return p.Recorded == nil || in.Node.Record.Deletion == nil || !in.Config.NodeManagement.DeleteFailedNodes
		}},
		{"a deletion names its target, which stands in the record first", func(in Input, ev Evidence, p Plan) bool {
			d := p.Change.Record.Deletion
			return p.Step != StepDelete || p.Target == ev.Owner.Target && p.Target.Name != "" && p.Target.UID != "" && d != nil && d.UID == p.Target.UID && !ev.Owner.Terminating
		}},
		{"the gate opens for a pass whose basis still holds, where there is nothing to check and all prerequisites hold, or once past the deadline by the user's word", func(in Input, ev Evidence, p Plan) bool {
			if p.Change.Gate != gateOpen {
				return true
			}
			if p.ReleasesUnverified() {
				at, ok := verificationDeadline(in, now)
				return in.Config.Reconciliation.OnDeadline == config.OnDeadlineRelease && ok && !now.Before(at) && ev.Fresh && Eligible(in) && in.Node.Leaving == "" && !in.Node.Lost &&
					in.Node.Record.Released == nil && CurrentPod(in.Node.Record, in.Pods) == nil && (p.Change.Label == nil || !*p.Change.Label) && (!in.Node.Owner.Managed || in.Node.Owner.Registered)
			}
			if in.Profile.Unchecked() && p.Change.Record.LastReason == attempt.ReasonNoChecks {
				return ev.Unmet != nil && len(*ev.Unmet) == 0 && Eligible(in) && in.Node.Leaving == "" && !in.Node.Lost &&
					(!in.Node.Owner.Managed || in.Node.Owner.Registered)
			}
			pod := CurrentPod(in.Node.Record, in.Pods)
			return pod != nil && p.Recorded != nil && p.Recorded.Number == pod.Attempt.Number && p.Recorded.Result.Outcome == attempt.Passed && pod.Passed() &&
				pod.Attempt.Basis.Checks == in.Checks && !otherBoot(pod.Attempt.Basis.BootID, in.Node.BootID) && (pod.Attempt.Basis.Gated || !in.Closed()) && Eligible(in) &&
				!pod.Terminating && !in.GateOpenSeen.After(pod.Seen.First)
		}},
		{"the label is set with a pass only", func(_ Input, _ Evidence, p Plan) bool {
			return p.Change.Label == nil || !*p.Change.Label || p.Recorded.Result.Outcome == attempt.Passed
		}},
		{"no worker starts beside another, on a lost node or one that is leaving, or where none is wanted", func(in Input, ev Evidence, p Plan) bool {
			return p.Step != StepStart || !in.Profile.Unchecked() && !in.Node.Lost && in.Node.Leaving == "" && Eligible(in) && NeedsVerification(in, now) && ev.Fresh && *ev.Slot && p.Number == in.Node.Record.Sequence+1 &&
				!slices.ContainsFunc(in.Pods, func(o workerpod.Observation) bool { return o.Purpose == workerpod.PurposeVerify && o.Occupies })
		}},
		{"a probe has a slot, and is not on the node itself", func(in Input, ev Evidence, p Plan) bool {
			return p.Step != StepProbe || *ev.Slot && p.Probe.On.Name != "" && p.Probe.On.UID != in.Node.UID
		}},
		{"a gated node does not claim to be verified", func(in Input, _ Evidence, p Plan) bool {
			return p.Condition == nil || p.Condition.Status != corev1.ConditionTrue || !in.Node.Gated
		}},
		{"an excluded node is left alone", func(in Input, _ Evidence, p Plan) bool {
			return in.Selected || p.Step == StepNone && p.Condition == nil && !p.ClearCondition
		}},
		{"a control plane that is not included is never tainted", func(in Input, _ Evidence, p Plan) bool {
			return !protected(in) || p.Change.Gate != gateClose
		}},
		{"a taint that evicts goes onto a node only if it runs no ordinary pods", func(in Input, ev Evidence, p Plan) bool {
			return p.Change.Gate != gateClose || ev.Workloads != nil && ev.Workloads.occupied() == "" ||
				!slices.ContainsFunc(p.Change.GateTaints, func(t marks.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute })
		}},
		{"a node in service is closed at its second failure in a row beside a passing probe, or first where the configuration says so", func(in Input, _ Evidence, p Plan) bool {
			before, c := in.Node.Record, in.Config.NodeManagement
			if !inService(in) || p.Change.Gate != gateClose && (p.Change.Label == nil || *p.Change.Label) {
				return true
			}
			if p.Recorded == nil {
				return c.Reverify.Taint && before.Released == nil || len(in.Profile.SuspectConditions) > 0 || before.Deletion != nil
			}
			return p.Recorded.Result.Outcome == attempt.Failed && p.Change.Record.Probed && before.LastOutcome == attempt.Failed && before.Probed &&
				before.Checks == in.Checks && before.Sequence+1 == p.Recorded.Number
		}},
		{"an attempt that proves nothing changes no gate", func(_ Input, _ Evidence, p Plan) bool {
			return p.Recorded == nil || p.Recorded.Result.Outcome != attempt.Inconclusive || p.Change.Gate == gateKeep && p.Change.Label == nil
		}},
		{"a failure is counted against a node beside a passing probe", func(in Input, ev Evidence, p Plan) bool {
			return p.Recorded == nil || p.Recorded.Result.Outcome != attempt.Failed || !needsControlProbe(in) || p.Change.Record.Probed &&
				slices.ContainsFunc(*ev.Probes, func(o workerpod.Observation) bool { return o.Passed() && o.Attempt.Basis.Checks == in.Checks })
		}},
		{"a record goes forward by one attempt, or by none", func(in Input, _ Evidence, p Plan) bool {
			before, r := in.Node.Record, p.Change.Record
			if p.Recorded != nil {
				return r.Sequence == before.Sequence+1 && r.NodeUID == in.Node.UID && r.LastTime.Equal(now) && r.Attempts <= max(before.Attempts, in.Config.Reconciliation.MaxRetries) && len(r.Encode()) > 0 &&
					(!before.MayHaveVerified() || r.MayHaveVerified())
			}
			return p.Step != StepRecord && p.Step != StepDelete || r.Sequence == before.Sequence && r.Attempts == before.Attempts && r.LastOutcome == before.LastOutcome
		}},
		{"a record that is written can be read", func(in Input, _ Evidence, p Plan) bool {
			return p.Step != StepRecord && p.Step != StepDelete || p.Change.KeepRecord || readable(in, p.Change.Record)
		}},
		{"a pod of no recorded attempt is deleted on a fresh node only", func(in Input, ev Evidence, p Plan) bool {
			return ev.Fresh || !hasUnrecorded(in.Node.Record, p.Delete)
		}},
		{"a pod on its way out is not deleted again", func(_ Input, _ Evidence, p Plan) bool {
			return !slices.ContainsFunc(p.Delete, func(o workerpod.Observation) bool { return o.Terminating })
		}},
		{"an attempt starts from waiting, exhausted, held or remediating without an intent, and while none is under way", func(in Input, _ Evidence, p Plan) bool {
			from := []State{StateWaiting, StateExhausted, StateHeld, StateRemediating}
			return p.Step != StepStart || slices.Contains(from, StateOf(in, now)) && in.Node.Record.Deletion == nil && !underWay(in)
		}},
		{"a deletion is decided from exhausted, held or remediating, on a fresh node with ledger, counts and owner", func(in Input, ev Evidence, p Plan) bool {
			from := []State{StateExhausted, StateHeld, StateRemediating}
			return p.Step != StepDelete || slices.Contains(from, StateOf(in, now)) && ev.Fresh && ev.Ledger != nil && ev.Counts != nil && ev.Owner != nil
		}},
		{"the gate opens from verifying, from waiting without checks, for a label by hand, or by the user's word", func(in Input, _ Evidence, p Plan) bool {
			state := StateOf(in, now)
			return p.Change.Gate != gateOpen || p.Releases() && (state == StateVerifying || state == StateWaiting && in.Profile.Unchecked()) ||
				labelledByHand(in) && p.ReleasesLabelled() || p.ReleasesUnverified() && in.Config.Reconciliation.OnDeadline == config.OnDeadlineRelease && !underWay(in)
		}},
		{"verified and not ours take no step, unless another writer opened the gate or boot IDs alternate", func(in Input, _ Evidence, p Plan) bool {
			state := StateOf(in, now)
			flaps := p.Recorded == nil && p.Change.Gate == gateKeep && !reflect.DeepEqual(p.Change.Record.Flapping, in.Node.Record.Flapping)
			return p.Step == StepNone || state != StateVerified && state != StateNotOurs || p.Step == StepRecord && (OpenedUnverified(in) || flaps)
		}},
		{"a node that is to be adopted gets no other record", func(in Input, _ Evidence, p Plan) bool {
			return !Adoptable(in) || p.Step == StepNone
		}},
		{"nothing is left to do for a quiet node", func(in Input, _ Evidence, p Plan) bool {
			look, quiet := Quiet(in, now)
			return !quiet || p.Step == StepNone && len(p.Events) == 0 && !p.ClearCondition && (p.Condition == nil || p.Condition.Same(in.Node.Condition)) &&
				(look == 0 || in.DryRunDone || 0 < p.RequeueAfter && p.RequeueAfter <= look)
		}},
		{"an event has a declared reason, a key and a bound", func(_ Input, _ Evidence, p Plan) bool {
			return !slices.ContainsFunc(p.Events, func(e Event) bool {
				return e.Reason.Name == "" || e.Reason.Type == "" || e.Reason.Action == "" || e.Key == "" ||
					len(e.Message) > 4*attempt.MaxMessage
			})
		}},
		{"a pod is kept only once it ended", func(_ Input, _ Evidence, p Plan) bool {
			return !slices.ContainsFunc(p.Keep, func(o workerpod.Observation) bool { return o.Occupies || o.Recorded })
		}},
		{"it looks again later, and says no more than a condition holds", func(_ Input, _ Evidence, p Plan) bool {
			return p.RequeueAfter >= 0 && (p.Condition == nil || len(p.Condition.Message) < 4*attempt.MaxMessage)
		}},
	}
}

// readable reports whether the record is read from the node as it was written.
func readable(in Input, r marks.Record) bool {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: types.UID(in.Node.UID), Annotations: map[string]string{marks.AnnotationRecord: r.Encode()}}}
	f := marks.Observe(n, marks.Vocabulary{})
	return f.RecordProblem == "" && f.Record.Encode() == r.Encode()
}
