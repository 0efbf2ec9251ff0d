package decide

import (
	"fmt"
	"strings"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

const (
	// BootReturns is the time within which a boot ID that returns is the second machine of a node's name, and no reboot. A
	// node counts as flapping for so long after the last return.
	BootReturns = time.Hour
	// flappingWait is how long no attempt starts after a return. A kubelet reports its status every five minutes at least
	// (nodeStatusReportFrequency), so two machines show within that time that both are still there.
	flappingWait = 10 * time.Minute
	// flappingRenewed is how often the record of a node that flaps is renewed.
	flappingRenewed = 5 * time.Minute
)

// returned is when a boot ID of the node returned last, as far as that is known; zero if none did within BootReturns.
func returned(in Input, now time.Time) (at time.Time) {
	if f := in.Node.Record.Flapping; f != nil {
		at = f.Time
	}
	if in.BootReturned.After(at) {
		at = in.BootReturned
	}
	if at.After(now.Add(clockTolerance)) || now.Sub(at) >= BootReturns { // a time in the future is forged
		return time.Time{}
	}
	return at
}

// recordFlapping records that two machines report under the node's name, renews that, or ends it. done is whether
// there is something to write.
func recordFlapping(in Input, now time.Time) (p Plan, done bool) {
	r, at := in.Node.Record, returned(in, now)
	switch {
	case in.LocalWorker != nil:
		return p, false
	case at.IsZero() && r.Flapping != nil:
		r.Flapping = nil
	case !at.IsZero() && at.Equal(in.BootReturned) && (r.Flapping == nil || at.Sub(r.Flapping.Time) >= flappingRenewed):
		if r.Flapping == nil {
			p.Events = []Event{{Reason: EventBootIDFlapping, Key: strings.Join(in.BootIDs, "/"), Message: fmt.Sprintf("%s. "+
				"Give each machine a name of its own (hostname, or kubelet --hostname-override), or stop the kubelet of one",
				flappingText(in.BootIDs))}}
		}
		r.NodeUID, r.Flapping = in.Node.UID, &marks.Flapping{BootIDs: in.BootIDs, Time: timestamp(at)}
	default:
		return p, false
	}
	p.Step, p.Change = StepRecord, marks.Change{Record: r}
	return p, true
}

// flappingText says which boot IDs alternate.
func flappingText(bootIDs []string) string {
	return "Two machines report under the node's name: their boot IDs " +
		attempt.Text(strings.Join(bootIDs, " and ")) + " alternate"
}

// awaitOneMachine reports whether no attempt starts because two machines report under the node's name: whose checks a
// worker would run is unknown. The plan then says so, and until when.
func awaitOneMachine(in Input, now time.Time) (p Plan, waits bool) {
	f := in.Node.Record.Flapping
	until := returned(in, now).Add(flappingWait)
	if f == nil || !now.Before(until) {
		return p, false
	}
	p.requeueAfter(until.Sub(now))
	text := flappingText(f.BootIDs)
	if !budgetOf(in).first {
		text += "; previous result: " + LastFailure(in.Node.Record)
	}
	p.Condition = unknownCondition(marks.ReasonVerifying, text+"; no attempt starts before one of them is gone for "+
		flappingWait.String(), f.Time)
	return p, true
}

// flapping says that two machines report under the node's name; empty if not. No action is taken on such a node.
func flapping(in Input) string {
	if f := in.Node.Record.Flapping; f != nil {
		return flappingText(f.BootIDs)
	}
	return ""
}
