package decide

import "time"

// Next decides the next step for one node. If it needs evidence that is costly to load, it names the evidence in
// Plan.Need. Resolve then loads it and calls Next again.
func Next(in Input, ev Evidence, now time.Time) Plan {
	if in.Node.Deleting {
		return Plan{} // the garbage collector deletes its pods
	}
	verify := Eligible(in) && NeedsVerification(in, now)
	pods := podWork(in, verify, now)
	if !ev.Fresh && (hasUnrecorded(in.Node.Record, pods.Delete) || len(pods.ForceDelete) > 0) {
		// A stale cache may lack the last record, the removal of the record, or the start of the pod. Then the controller
		// would end a worker whose result is not recorded, or delete a running one without grace.
		return Plan{Need: NeedFresh}
	}
	p := Plan{}
	if !in.DryRunDone {
		p = nextStep(in, ev, verify, now)
	}
	return withoutEviction(in, ev, p.with(pods))
}

// nextStep is what Next decides, without the node's pods. verify is whether the node must be verified.
func nextStep(in Input, ev Evidence, verify bool, now time.Time) Plan {
	if verify || in.Node.HasRecord && Eligible(in) {
		if p, done := recordFlapping(in, now); done {
			return p
		}
	}
	if !verify {
		return looks[StateOf(in, now)](in, ev, now)
	}
	p, done := reopen(in, ev, now)
	if !done {
		again := p.RequeueAfter
		p = verification(in, ev, now)
		p.requeueAfter(again)
	}
	p.addToCondition(flapping(in))
	p.addToCondition(reselected(in))
	return withDeadline(in, ev, p, now)
}

// verification goes on with the verification of a node. No attempt starts while its name has two machines, or another
// writer takes its passes back. Past the deadline, one that proved nothing is followed by no other.
func verification(in Input, ev Evidence, now time.Time) Plan {
	if !underWay(in) {
		if p, waits := awaitOneMachine(in, now); waits {
			return p
		}
		if p, waits := awaitTakenBack(in, now); waits {
			return p
		}
		if !in.Profile.Unchecked() && inconclusiveAttempt(in) && expires(in, now) {
			p, _ := between(in, now)
			return expired(in, ev, p, false, now)
		}
	}
	return looks[StateOf(in, now)](in, ev, now)
}

// looks are the decisions about a node in each state, without its pods and its deadline.
var looks = map[State]func(in Input, ev Evidence, now time.Time) Plan{
	StateNotOurs:     lookAtNotOurs,
	StateVerified:    lookAtVerified,
	StateRemediating: lookAtRemediating,
	StateVerifying:   lookAtVerifying,
	StateWaiting:     lookAtWaiting,
	StateHeld:        lookAtHeld,
	StateExhausted:   lookAtExhausted,
	StateBackingOff:  lookAtBackingOff,
}

// with adds what happens to the node's pods, and when to look at them again.
func (p Plan) with(pods Plan) Plan {
	p.Delete, p.Keep, p.ForceDelete = pods.Delete, pods.Keep, pods.ForceDelete
	p.requeueAfter(pods.RequeueAfter)
	return p
}
