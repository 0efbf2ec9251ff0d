package nodestatus

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Reverify is the patch (a JSON merge patch, refused by the API server when the node has
// changed meanwhile) that makes the controller verify a node now. It is nil, with a message
// that says why, when an attempt is under way already. An error tells why there can be none.
//
// A verified node loses its label. For any other, the record is wound back to the start of a
// run. It is not removed: it also holds the number of the last worker pod, so that none is
// counted twice, and that the node once was verified, so that it is not deleted as one that
// never was.
func Reverify(cfg *config.Config, n *corev1.Node, pods []Pod, now time.Time) (patch []byte, message string, err error) {
	in := Observe(cfg, n, pods)
	switch {
	case in.Node.Deleting:
		return nil, "", fmt.Errorf("node %s is being deleted", n.Name)
	case !decide.Subject(in):
		return nil, "", fmt.Errorf("node %s is not verified: %s", n.Name, exclusion(in))
	}
	if pod := current(in); pod != nil && decide.Needed(in, now) {
		if pod.State == workerpod.Finished {
			return nil, fmt.Sprintf("attempt %d has ended, its result is being recorded", pod.Attempt), nil
		}
		return nil, fmt.Sprintf("attempt %d is under way already", pod.Attempt), nil
	}
	if len(in.Waiting) > 0 {
		return nil, "it is verified as soon as its prerequisites hold: " + strings.Join(in.Waiting, "; "), nil
	}
	change := node.Change{Record: in.Node.Record, Gate: node.GateKeep}
	if r := in.Node.Record; r.LastOutcome != node.OutcomePassed {
		change.Record = node.Record{NodeUID: in.Node.UID, BootID: r.BootID, Sequence: r.Sequence, VerifiedTime: r.VerifiedTime}
	}
	if in.Node.Labelled {
		change.Label = ptr.To(false)
	}
	return change.Patch(n, in.Profile.Taints, cfg.NodeManagement.VerifiedLabel),
		fmt.Sprintf("attempt %d starts as soon as the controller sees it", in.Node.Record.Sequence+1), nil
}
