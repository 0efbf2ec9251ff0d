package remediation_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// remediationPaths are the ways of the remediation reconciler.
func remediationPaths() map[string]world.Path {
	held := func(guard string) world.Result {
		return world.Result{Gated: true, Record: "failed ChecksFailed held=" + guard + " verified=false", Sequence: 2, Attempts: 2, Condition: "Unknown RemediationHeld"}
	}
	again := func(r world.Result, change func(*world.Result)) world.Result { change(&r); return r }
	hold := []string{"patch Node", "patch Node/status"}
	late := append([]string{"patch Node/status"}, hold...) // the node says that its retries are exhausted before the guard is asked
	return map[string]world.Path{
		"hold by doNotDelete": {Settings: `{"nodeManagement": {` + world.Deletes + `}}`, Writes: hold,
			Begin: func(w *world.World) *corev1.Node {
				return w.Exhausted("n", func(n *corev1.Node) { n.Annotations = map[string]string{marks.AnnotationDoNotDelete: "true"} })
			},
			Want: held(decide.GuardDoNotDelete), Events: map[decide.Reason]int{decide.EventHeld: 1}},

		"hold by neverVerifiedOnly": {Settings: `{"nodeManagement": {` + world.Deletes + `}}`, Writes: hold,
			Begin: func(w *world.World) *corev1.Node {
				n := w.Node("n")
				r := w.Failures(2)
				r.VerifiedTime = r.LastTime
				w.WriteRecord(n, r)
				return n
			},
			Want:   again(held(decide.GuardNeverVerifiedOnly), func(r *world.Result) { r.Record = strings.Replace(r.Record, "verified=false", "verified=true", 1) }),
			Events: map[decide.Reason]int{decide.EventQuarantined: 1}},

		"hold by sparePods": {Settings: `{"nodeManagement": {` + world.Deletes + `}}`, Writes: late,
			Begin: func(w *world.World) *corev1.Node {
				n := w.Exhausted("n")
				w.OrdinaryPod(n)
				return n
			},
			Most: world.Requests{Lists: 7},
			Want: held(decide.GuardSparePods), Events: map[decide.Reason]int{decide.EventHeld: 1}},

		"hold by maxDeletionsPerHour": {Settings: `{"nodeManagement": {` + world.Deletes + `, "remediation": {"maxDeletionsPerHour": 1}}}`, Writes: late,
			Begin: func(w *world.World) *corev1.Node {
				w.FillLedger(1)
				return w.Exhausted("n")
			},
			Want: again(held(decide.GuardMaxDeletionsPerHour), func(r *world.Result) { r.Ledger = 1 }), Events: map[decide.Reason]int{decide.EventHeld: 1}},

		"hold by a ledger that was emptied": {Settings: `{"nodeManagement": {` + world.Deletes + `}}`, Writes: append([]string{"patch Node/status", "update ConfigMap"}, hold...),
			Begin: func(w *world.World) *corev1.Node {
				w.FillLedger(1)
				w.EmptyLedger()
				return w.Exhausted("n")
			},
			Want: held(decide.GuardMaxDeletionsPerHour), Events: map[decide.Reason]int{decide.EventHeld: 1}},

		"hold by nodeClaim": {Settings: `{"nodeManagement": {` + world.Deletes + `}}`, Writes: late,
			Begin: func(w *world.World) *corev1.Node { return w.Exhausted("n", world.Pooled) },
			Most:  world.Requests{Lists: 8},
			Want:  held(owner.Guard), Events: map[decide.Reason]int{decide.EventHeld: 1}},

		"delete a NodeClaim": {Settings: `{"reconciliation": {"maxRetries": 1}, "nodeManagement": {` + world.Deletes + `, "remediation": {"controlProbe": false}}}`,
			Begin: func(w *world.World) *corev1.Node {
				w.Exit = func(*corev1.Pod) int { return 1 }
				n := w.Node("n", world.Pooled)
				w.Claim(n)
				w.Claim(w.Node("other", world.Pooled, func(n *corev1.Node) { n.Annotations = map[string]string{marks.AnnotationSkip: "true"} }))
				return n
			},
			Writes: []string{"create Pod", "patch Node", "patch Node/status", "patch Pod", "patch Node", "update ConfigMap", "delete Pod", "delete NodeClaim", "patch Node/status"},
			Most:   world.Requests{Reads: 3, Lists: 7},
			Want: world.Result{Gated: true, Record: "failed ChecksFailed held= verified=false", Sequence: 1, Attempts: 1, Condition: "False RetriesExhausted",
				Deletion: "NodeClaim/claim", Ledger: 1, Deleted: 1},
			Events: map[decide.Reason]int{decide.EventFailed: 1, decide.EventExhausted: 1, decide.EventDeleted("NodeClaim"): 1, decide.EventRemediationStarted: 1}},

		"delete a Node": {Settings: `{"reconciliation": {"maxRetries": 1}, "nodeManagement": {` + world.Deletes + `, "remediation": {"controlProbe": false}}}`,
			Begin: func(w *world.World) *corev1.Node {
				w.Exit = func(*corev1.Pod) int { return 1 }
				return w.Node("n")
			},
			Writes: []string{"create Pod", "patch Node", "patch Node/status", "patch Pod", "patch Node", "update ConfigMap", "delete Pod", "delete Node"},
			Most:   world.Requests{Reads: 2, Lists: 5},
			Want:   world.Result{Gone: true, Record: "  held= verified=false", Ledger: 1, Deleted: 1},
			Events: map[decide.Reason]int{decide.EventFailed: 1, decide.EventExhausted: 1, decide.EventDeleted(owner.Node): 1, decide.EventRemediationStarted: 1}},

		"delete past the deadline": {Settings: `{"worker": {"startTimeoutSeconds": 5, "timeoutSeconds": 5, "checkTimeoutSeconds": 5}, "reconciliation": {"verificationDeadlineSeconds": 30, "onDeadline": "remediate"}, "nodeManagement": {` + world.Deletes + `}}`, Rounds: 8,
			Begin: func(w *world.World) *corev1.Node {
				w.Verified("control")
				n := w.Node("n")
				w.Unmet = func(node string) bool { return node == n.Name }
				return n
			},
			Most:   world.Requests{Reads: 1, Lists: 5},
			Want:   world.Result{Gone: true, Record: "  held= verified=false", Ledger: 1, Deleted: 1},
			Events: map[decide.Reason]int{decide.EventExhausted: 1, decide.EventDeleted(owner.Node): 1, decide.EventRemediationStarted: 1}},

		"hold past the deadline what verified nodes share, then it passes": {Settings: `{"worker": {"startTimeoutSeconds": 5, "timeoutSeconds": 5, "checkTimeoutSeconds": 5}, "reconciliation": {"verificationDeadlineSeconds": 30, "onDeadline": "remediate"}, "nodeManagement": {` + world.Deletes + `}}`, Rounds: 8,
			Begin: func(w *world.World) *corev1.Node {
				w.Exit = func(p *corev1.Pod) int {
					if world.IsProbe(p) {
						return 1
					}
					return 0
				}
				w.Verified("control")
				n := w.Node("n")
				w.Unmet = func(node string) bool { return node == n.Name && w.Record(node).Held == "" }
				return n
			},
			Most:   world.Requests{Reads: 2},
			Want:   again(world.Passed, func(r *world.Result) { r.Sequence, r.Inconclusive = 2, 1 }),
			Events: map[decide.Reason]int{decide.EventPassed: 1, decide.EventExhausted: 0}},
	}
}

func TestRemediationWritesDisturbed(t *testing.T) { world.DisturbEveryWrite(t, remediationPaths()) }

func TestStaleLeaderBesideRemediationPaths(t *testing.T) {
	world.StaleLeaderBeside(t, remediationPaths())
}
