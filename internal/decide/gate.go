package decide

import (
	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// gateRemoved is the result of an attempt that began under a gate which was opened since; nil where it was not. Its pass
// must not open a gate that is closed later. That is recorded while the attempt is still under way, since the successor
// of a controller that saw the gate open cannot know it. A pass while the gate is open counts, as there is no gate that
// it could open.
func gateRemoved(in Input, pod workerpod.Observation) *attempt.Result {
	switch {
	case !pod.Attempt.Basis.Gated || !in.Node.Gated && pod.Attempt.Result != nil:
		return nil
	case !in.Node.Gated, in.GateOpenSeen.After(pod.Seen.First):
		return attempt.NewInconclusive(attempt.ReasonGateRemoved, "the gating taint was taken off after the worker began")
	case pod.Terminating && pod.Passed():
		// Where a node without a record loses its gate, nothing is recorded, and the worker is deleted. That is all
		// that shows it.
		return attempt.NewInconclusive(attempt.ReasonGateRemoved,
			"the worker was deleted before its pass was recorded, maybe because the gating taint was taken off")
	}
	return nil
}
