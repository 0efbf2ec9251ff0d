package decide

import "github.com/kube-node-ready/kube-node-ready/internal/attempt"

// A node that worked is closed for its own fault only: at the second failure in a row beside which a control probe of
// its group passed. What its group shares, or nobody could compare, leaves its gate and its label as they are.

// rowOfFailures is how many failures of its own in a row close the gate of a node in service.
const rowOfFailures = 2

// worked reports whether the node passed before, or may have, and is compared with other nodes. A process that verifies
// its own node knows no other one.
func worked(in Input) bool { return in.Node.Record.MayHaveVerified() && in.LocalWorker == nil }

// inService reports whether a node that worked may still get workloads: its gate is open. A node that must never be
// tainted is in service as long as it carries the label.
func inService(in Input) bool {
	return worked(in) && !in.Closed() && (in.Node.Labelled || !protected(in))
}

// gateAtStake reports whether a failure counts only after a control probe of the node's group has passed, even with
// deletion off. The node worked, and has not yet been shown to be at fault. Afterwards, probes are for remediation.
func gateAtStake(in Input) bool {
	shown := budgetOf(in).attempts >= min(rowOfFailures, in.Config.Reconciliation.MaxRetries)
	return worked(in) && (inService(in) || !shown)
}

// closesGate reports whether a failure that is counted against the node closes its gate. spent is what the run had
// spent before it, and attempts counts it. In service a control probe passed beside it, and one must have passed beside
// the failure before. This attempt began after that probe had passed, because its number follows from the record that
// was written then.
func closesGate(in Input, spent budget, attempts int32) bool {
	before := in.Node.Record
	switch {
	case inService(in):
		return !spent.first && before.LastOutcome == attempt.Failed && before.Probed
	case releasedUnverified(in), in.LocalWorker != nil && before.MayHaveVerified() && !in.Closed():
		return attempts >= in.Config.Reconciliation.MaxRetries
	}
	return true // it is closed, or never passed
}

// SharesFailure reports whether a node that worked failed last together with others of its group, or nobody could
// compare it. That proves nothing about the node.
func SharesFailure(in Input) bool {
	return budgetOf(in).shared > 0 && in.Node.Record.Held == "" && gateAtStake(in)
}

// exhausts reports whether so many failures exhaust the node's retries. Those of a node in service do not, whatever
// maxRetries is: another attempt has to show whether it stays in service.
func exhausts(in Input, attempts int32) bool {
	return attempts >= in.Config.Reconciliation.MaxRetries && !inService(in)
}
