package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

const (
	// takenBackWithin is how soon after a pass a mark must be gone, so that another writer is at work and not a person.
	takenBackWithin = time.Minute
	// takenBackWindow is the time in which takenBackMost passes may be taken back without consequences: a person removes
	// the label to have the node verified.
	takenBackWindow = time.Hour
	takenBackMost   = 2
	// maxTakenBackWait limits the wait for the next verification.
	maxTakenBackWait = 10 * time.Minute
)

// Mark is a mark of ours that another writer takes back.
type Mark string

// The marks.
const (
	MarkTaint Mark = "taint" // a gating taint returned
	MarkLabel Mark = "label" // the verified label was removed or changed
)

// Marks lists them.
func Marks() []Mark { return []Mark{MarkTaint, MarkLabel} }

// undone is the mark of the node's pass that is gone and that is the only reason to verify the node; empty for none.
// Where there is another reason, such as a reboot or a suspicion, the controller itself may have closed the gate.
func undone(in Input, now time.Time) (mark Mark) {
	switch {
	case in.LocalWorker != nil || in.Node.Record.LastOutcome != attempt.Passed || in.Node.Record.VerifiedTime == nil:
		return ""
	case in.Node.Record.Released != nil: // the controller itself removed the label
		return ""
	case in.Node.Gated:
		mark = MarkTaint
	case !in.Node.Labelled:
		mark = MarkLabel
	}
	in.Node.Gated, in.Node.GatedBy, in.Node.Labelled = false, nil, true
	if NeedsVerification(in, now) {
		return ""
	}
	return mark
}

// recordTakenBack records that another writer took back the node's last pass, once for each pass. done is whether
// there is something to write, or to load first.
func recordTakenBack(in Input, ev Evidence, now time.Time) (p Plan, done bool) {
	r, mark := in.Node.Record, undone(in, now)
	if mark == "" || r.TakenBack.Last().Equal(*r.VerifiedTime) {
		return p, false
	}
	if age := now.Sub(*r.VerifiedTime); age > takenBackWithin || age < -clockTolerance {
		return p, false
	}
	var before []time.Time
	if r.VerifiedTime.Sub(r.TakenBack.Last()) <= takenBackWindow {
		passes := r.TakenBack.Passes
		before = passes[max(0, len(passes)+1-marks.MaxTakenBack):]
	}
	r.TakenBack = &marks.TakenBack{Passes: append(slices.Clone(before), *r.VerifiedTime)}
	if MarksTakenBack(r, now) {
		if !ev.Fresh {
			p.Need = NeedFresh // the cache does not have who wrote the node
			return p, true
		}
		r.TakenBack.By = writer(in, mark)
		r.NextAttemptTime = ptr.To(takenBackUntil(in, r))
		p.TakenBack = mark
		p.Events = []Event{{Reason: EventMarksTakenBack, Key: string(mark) + "/" + r.TakenBack.By,
			Message: takenBackText(mark, in, r.TakenBack.By) + ". " + takenBackFix(mark)}}
	}
	p.Step, p.Change = StepRecord, marks.Change{Record: r}
	return p, true
}

// MarksTakenBack reports whether another writer takes back one pass of the node after the other. It took back more than
// two within an hour, the last of them less than an hour ago.
func MarksTakenBack(r marks.Record, now time.Time) bool {
	last := r.TakenBack.Last()
	if last.IsZero() || now.Sub(last) > takenBackWindow || last.After(now.Add(clockTolerance)) {
		return false
	}
	passes := r.TakenBack.Passes
	i := len(passes) - 1 - takenBackMost
	return i >= 0 && last.Sub(passes[i]) <= takenBackWindow
}

// takenBackUntil is when the next verification starts after a pass that was taken back. It waits as after failures.
// retryBackoff and maxBackoffSeconds do not count: another writer never gives up.
func takenBackUntil(in Input, r marks.Record) time.Time {
	rc := in.Config.Reconciliation
	rc.RetryBackoff, rc.MaxBackoffSeconds = config.BackoffExponential, int32(maxTakenBackWait/time.Second)
	return r.TakenBack.Last().Add(Backoff(rc, int32(len(r.TakenBack.Passes)-takenBackMost), in.Node.UID))
}

// awaitTakenBack reports whether the node waits because another writer takes back one pass after the other. The plan
// then says until when.
func awaitTakenBack(in Input, now time.Time) (p Plan, waits bool) {
	why, at := takenBack(in, now)
	if why == "" || !now.Before(at) {
		return p, false
	}
	p.requeueAfter(at.Sub(now))
	p.Condition = unknownCondition(marks.ReasonVerifying,
		fmt.Sprintf("%s; next verification at %s", why, at.UTC().Format(time.RFC3339)), lastTime(in.Node.Record))
	return p, true
}

// takenBack says that another writer takes back one pass after the other, and when the next verification starts; empty
// if nobody does.
func takenBack(in Input, now time.Time) (why string, at time.Time) {
	r, mark := in.Node.Record, undone(in, now)
	if mark == "" || !MarksTakenBack(r, now) || !r.TakenBack.Last().Equal(*r.VerifiedTime) {
		return "", time.Time{}
	}
	return takenBackText(mark, in, r.TakenBack.By), takenBackUntil(in, r)
}

// writer is the field manager that wrote the mark last. Only a node that was read from the API server shows it, and
// nothing shows who removed a label.
func writer(in Input, mark Mark) string {
	if mark == MarkLabel {
		return marks.Writer(in.Node.ManagedFields, "metadata", "labels", in.Config.NodeManagement.VerifiedLabel.Key)
	}
	return marks.Writer(in.Node.ManagedFields, "spec", "taints")
}

// takenBackText says what was taken back, and by whom.
func takenBackText(mark Mark, in Input, manager string) string {
	label := in.Config.NodeManagement.VerifiedLabel
	text := fmt.Sprintf("The checks passed, and label %s=%s was taken away within a minute of it", label.Key, label.Value)
	if mark == MarkTaint {
		var taints []string
		for _, t := range in.Node.GatedBy {
			taints = append(taints, t.ID().String())
		}
		text = fmt.Sprintf("The checks passed, and taint %s came back within a minute of it", strings.Join(taints, ", "))
	}
	text += ", again and again; "
	switch {
	case manager != "" && mark == MarkTaint:
		return text + "field manager " + attempt.Text(manager) + " wrote the taints last"
	case manager != "":
		return text + "field manager " + attempt.Text(manager) + " wrote the label last"
	}
	return text + "the Node does not show by whom, but the API server's audit log does"
}

// takenBackFix says what to change.
func takenBackFix(mark Mark) string {
	if mark == MarkLabel {
		return "Remove the label from what Git or another controller applies to nodes"
	}
	return "Remove the taint from what sets it all the time, such as a node group, a machine set or Talos' nodeTaints. " +
		"A node must get it only when it is created"
}
