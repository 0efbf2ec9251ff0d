package decide

import (
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// Ledger is what is known of the actions of the last hour or window, the oldest first. An action is added only if the
// ledger still has its Version.
type Ledger struct {
	ledger.Contents
	// Earlier are entries that no limit counts any more, as far as the ledger keeps them.
	Earlier []ledger.Entry
	// Problem is why the actions are unknown, so no limit can be checked.
	Problem string
}

// Workloads are ordinary pods on a node, those that do not belong to the node itself, and what marks a control plane.
type Workloads struct {
	// Names are some of them, as namespace/name, sorted.
	Names []string
	// More: there are others.
	More bool
	// Stale: newer pods may be missing. That is enough to hold an action, but not to add a taint that evicts.
	Stale bool
	// ControlPlane is a static pod of an API server or etcd on the node, as namespace/name; empty if the node runs none.
	ControlPlane string
	// Problem says why they are not known.
	Problem string
}

// action is what to do about a node that exhausted its retries.
type action string

const (
	actionLeave  action = "leave"  // its owner is being deleted, and the record says so
	actionIntend action = "intend" // its owner is being deleted, and the record is to say so
	actionDrop   action = "drop"   // the intended deletion did not happen, and another attempt must confirm it
	actionHold   action = "hold"   // a guard holds the action
	actionAsk    action = "ask"    // a condition asks a repairer to act; see Remediation
	actionDelete action = "delete" // the owner is deleted
)

// remedy is what remedyOf decided. It has an action, or the evidence that it needs.
type remedy struct {
	action action
	// held is what the guards say, for actionHold.
	held held
	// target is the object of actionIntend and actionDelete.
	target owner.Target
	need   Need
}

// remedyOf decides what to do about a node that exhausted its retries. If confirmed is true, its last failure was
// observed recently.
func remedyOf(in Input, ev Evidence, confirmed bool, now time.Time) remedy {
	if r := in.Node.Record; r.Deletion != nil {
		switch {
		case ev.Owner == nil:
			return remedy{need: NeedOwner}
		case ev.Owner.Terminating && r.Held == "":
			return remedy{action: actionLeave}
		case ev.Owner.Terminating: // an earlier lookup failed, this one succeeded
			return remedy{action: actionIntend, target: ev.Owner.Target}
		case ev.Owner.Problem != "" && r.Deletion.Kind != owner.Node: // it may be terminating already
			return remedy{action: actionHold, held: held{guard: owner.Guard, message: ev.Owner.Problem}}
		case !confirmed && ev.Fresh:
			// The intent is old, or from before a reboot or another configuration. A list of owners that is a few seconds old
			// may not show the deletion.
			return remedy{action: actionDrop}
		case !confirmed:
			return remedy{need: NeedFresh}
		}
	}
	by := firstGuard(in, ev, now)
	switch {
	case by.need != NeedNothing:
		return remedy{need: by.need}
	case by.guard != "":
		return remedy{action: actionHold, held: by}
	case in.Config.NodeManagement.Remediation.Action == config.ActionCondition && !ev.Owner.Terminating:
		return remedy{action: actionAsk}
	case !ev.Fresh:
		return remedy{need: NeedFresh} // all evidence is then loaded again from the API server
	case ev.Owner.Terminating:
		return remedy{action: actionIntend, target: ev.Owner.Target}
	}
	return remedy{action: actionDelete, target: ev.Owner.Target}
}
