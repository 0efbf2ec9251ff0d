package node_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// short are attempts that end soon.
const short = `{"worker": {"startTimeoutSeconds": 20, "timeoutSeconds": 20, "checkTimeoutSeconds": 10},
	"reconciliation": {"maxRetries": 3, "exhaustedRetrySeconds": 600}}`

// configureDeletion is short, with deletion on.
func configureDeletion(w *world.World) { w.Configure(short, `{"nodeManagement": {`+world.Deletes+`}}`) }

// stuckOn plays a kubelet that cannot end the workers of a node.
func stuckOn(w *world.World, node string) {
	on := func(p *corev1.Pod) bool { return !world.IsProbe(p) && p.Annotations[workerpod.AnnotationNode] == node }
	w.Exit = func(p *corev1.Pod) int {
		if on(p) {
			return world.Runs
		}
		return 0
	}
	w.Hold = on
}

// A container runtime that hangs neither starts a worker nor confirms its end. The pod is deleted without grace,
// whether or not the node is Ready. Further attempts show the problem.
func TestHungRuntime(t *testing.T) {
	const ready, notReady = corev1.ConditionTrue, corev1.ConditionFalse
	for name, status := range map[string]corev1.ConditionStatus{"Ready": ready, "not Ready": notReady} {
		for _, failover := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, failover %v", name, failover), func(t *testing.T) {
				t.Parallel()
				w := world.Begin(t, short)
				w.Exit, w.Linger = func(*corev1.Pod) int { return world.Stays }, true
				n := w.Node("n")
				w.SetReady(n.Name, status)
				l := w.Lead()
				terminating := func() bool { p := w.Pods(n.Name); return len(p) == 1 && p[0].DeletionTimestamp != nil }
				if took, ok := l.Until(time.Minute, terminating); !ok {
					t.Fatalf("after %s: %+v", took, w.Record(n.Name))
				}
				if failover {
					w.Clock.Advance(time.Hour) // nobody leads
					l = w.Lead()
				}
				took, ok := l.Until(3*time.Minute, func() bool { return w.Created("verify") == 2 })
				if !ok || took < time.Minute {
					t.Errorf("the second worker started after %s: %v, %+v", took, ok, w.Record(n.Name))
				}
				l.Until(4*time.Minute, func() bool { return w.Record(n.Name).Inconclusive == 3 })
				if r := w.Record(n.Name); r.Inconclusive != 3 || r.Attempts != 0 || r.LastReason != attempt.ReasonStartTimeout {
					t.Errorf("%+v", r)
				}
				w.Exit, w.Linger = func(*corev1.Pod) int { return 0 }, false
				l.Drive()
				if _, f := w.Get(n.Name); f.Gated || len(l.Errs) > 0 {
					t.Errorf("%+v, errors %v", f.Record, l.Errs)
				}
			})
		}
	}
}

// A worker that its kubelet cannot end exhausts the node, and the condition says so. After some time, it leads to the
// node's deletion if a probe passes. A failover delays that.
func TestWorkerStuck(t *testing.T) {
	for _, failover := range []string{"", "while it terminates", "once that is recorded"} {
		t.Run("failover "+failover, func(t *testing.T) {
			t.Parallel()
			w := world.OnServer(t, "")
			configureDeletion(w)
			w.Verified("control")
			n := w.Node("n")
			stuckOn(w, n.Name)
			l := w.Lead()
			if took, ok := l.Until(2*time.Minute, func() bool { return w.Record(n.Name).Sequence == 1 }); !ok {
				t.Fatalf("after %s: %+v", took, w.Record(n.Name))
			}
			if r := w.Record(n.Name); r.LastReason != attempt.ReasonTimeout || r.Attempts != 1 {
				t.Errorf("%+v", r)
			}
			l.Until(30*time.Second, func() bool { return false })
			if _, f := w.Get(n.Name); !says(f.Condition, "its container has not ended") {
				t.Errorf("it says %+v", f.Condition)
			}
			if failover == "while it terminates" {
				w.Clock.Advance(time.Hour)
				l = w.Lead()
			}
			recorded := func() bool { return w.Record(n.Name).LastReason == attempt.ReasonWorkerStuck }
			if took, ok := l.Until(3*time.Minute, recorded); !ok || len(w.Deleted()) > 0 {
				t.Fatalf("after %s: %+v, deleted %v", took, w.Record(n.Name), w.Deleted())
			}
			events, born := w.EventCount(n.Name, decide.EventExhausted), w.Created("verify")
			if r := w.Record(n.Name); r.Sequence != 2 || r.Attempts != 3 || !r.Probed || born != 1 || events != 1 {
				t.Errorf("%+v, %d workers, %d events", r, born, events)
			}
			if failover == "once that is recorded" {
				w.Clock.Advance(time.Minute)
				l = w.Lead()
			}
			took, ok := l.Until(15*time.Minute, func() bool { return len(w.Deleted()) > 0 })
			if !ok || took < time.Minute && failover == "once that is recorded" {
				t.Errorf("deleted after %s: %v, %+v", took, ok, w.Record(n.Name))
			}
			if len(l.Errs) > 0 {
				t.Error(l.Errs)
			}
		})
	}
}

// A node whose worker could not be ended continues once the worker has ended. Until then, it costs a few writes an
// hour.
func TestWorkerStuckEnds(t *testing.T) {
	w := world.OnServer(t, short)
	n := w.Node("n")
	stuckOn(w, n.Name)
	l := w.Lead()
	stuck := func() bool { return w.Record(n.Name).LastReason == attempt.ReasonWorkerStuck }
	if _, ok := l.Until(5*time.Minute, stuck); !ok {
		t.Fatalf("%+v", w.Record(n.Name))
	}
	l.Until(time.Minute, func() bool { return false })
	_, f := w.Get(n.Name)
	if !says(f.Condition, "does not end") || f.Condition.Reason != marks.ReasonRetriesExhausted {
		t.Errorf("it says %+v", f.Condition)
	}
	before := l.WriteCount()
	l.Until(time.Hour, func() bool { return false })
	// A record and a condition every eight to ten minutes.
	if writes := l.WriteCount() - before; writes > 16 || w.Created("verify") != 1 {
		t.Errorf("%d writes in an hour: %v", writes, l.Writes[before:])
	}
	w.Exit, w.Hold = func(*corev1.Pod) int { return 0 }, nil
	if took, ok := l.Until(time.Minute, func() bool { return !gated(w, n.Name) }); !ok {
		t.Errorf("after %s: %+v", took, w.Record(n.Name))
	}
}

func says(c *corev1.NodeCondition, what string) bool {
	return c != nil && strings.Contains(c.Message, what)
}

func gated(w *world.World, node string) bool { _, f := w.Get(node); return f.Gated }

// A cause outside the node does not count against the node. The node waits, its condition gives the reason, and it
// continues when the cause is gone.
func TestWorkerThatDoesNotEndChargesNobody(t *testing.T) {
	for name, tc := range map[string]struct {
		first func(w *world.World)                       // once the workers run
		begin func(w *world.World, nodes []*corev1.Node) // once their failure is recorded
		wait  time.Duration
		end   func(w *world.World, nodes []*corev1.Node) // of the fault
		later time.Duration                              // from then until the kubelets go on
		says  string
	}{
		"a partition of a zone": {wait: 10 * time.Minute, says: "Ready is Unknown",
			begin: func(w *world.World, nodes []*corev1.Node) { readies(w, nodes, corev1.ConditionUnknown) },
			end:   func(w *world.World, nodes []*corev1.Node) { readies(w, nodes, corev1.ConditionTrue) },
			later: 10 * time.Second},
		"a slow teardown": {wait: 50 * time.Second, says: "its container has not ended"},
		"a foreign finalizer": {wait: 10 * time.Minute, says: "example.com/keep",
			first: func(w *world.World) { finalize(w, `["example.com/keep"]`) },
			end:   func(w *world.World, _ []*corev1.Node) { finalize(w, "null") }},
	} {
		for _, failover := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, failover %v", name, failover), func(t *testing.T) {
				t.Parallel()
				w := world.Begin(t, "")
				configureDeletion(w)
				w.Verified("control")
				nodes := []*corev1.Node{w.Node("a"), w.Node("b")}
				of := func(p *corev1.Pod) bool { return !world.IsProbe(p) }
				w.Exit, w.Hold = world.VerifyExits(world.Runs), of
				l := w.Lead()
				l.Until(5*time.Second, func() bool { return w.Created("verify") == len(nodes) })
				if tc.first != nil {
					tc.first(w)
				}
				all := func(is func(node string) bool) func() bool {
					return func() bool { return !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return !is(n.Name) }) }
				}
				if took, ok := l.Until(2*time.Minute, all(func(n string) bool { return w.Record(n).Sequence == 1 })); !ok {
					t.Fatalf("after %s: %+v", took, w.Record(nodes[0].Name))
				}
				if tc.begin != nil {
					tc.begin(w, nodes)
				}
				if failover {
					l.Until(20*time.Second, func() bool { return false })
					l = w.Lead()
				}
				l.Until(tc.wait, func() bool { return false })
				for _, n := range nodes {
					_, f := w.Get(n.Name)
					if !says(f.Condition, tc.says) || f.Condition.Status != corev1.ConditionUnknown {
						t.Errorf("it says %+v", f.Condition)
					}
				}
				if tc.end != nil {
					tc.end(w, nodes)
				}
				l.Until(tc.later, func() bool { return false })
				w.Exit, w.Hold = world.VerifyExits(0), nil
				if took, ok := l.Until(time.Minute, all(func(n string) bool { return !gated(w, n) })); !ok {
					t.Errorf("after %s: %+v", took, w.Record(nodes[0].Name))
				}
				for _, n := range nodes {
					if r := w.Record(n.Name); r.Sequence != 2 || w.EventCount(n.Name, decide.EventExhausted) != 0 {
						t.Errorf("%+v", r)
					}
				}
				if len(w.Deleted()) > 0 || len(l.Errs) > 0 {
					t.Errorf("deleted %v, errors %v", w.Deleted(), l.Errs)
				}
			})
		}
	}
}

func readies(w *world.World, nodes []*corev1.Node, status corev1.ConditionStatus) {
	w.Helper()
	for _, n := range nodes {
		w.SetReady(n.Name, status)
	}
}

// finalize gives all workers that verify these finalizers. One that is terminating
// takes no new ones.
func finalize(w *world.World, finalizers string) {
	w.Helper()
	for _, p := range w.Pods("") {
		if !world.IsProbe(&p) && (p.DeletionTimestamp == nil || finalizers == "null") {
			patch := fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, finalizers)
			w.Must(client.IgnoreNotFound(w.API.Patch(w.Ctx, &p, client.RawPatch(types.MergePatchType, patch))))
		}
	}
}

// Nodes whose kubelet died while a worker was running hold no slots. The other nodes are verified as soon as those are
// known to be lost. The same holds for workers that cannot be ended, also if the controller may not delete them.
func TestDeadNodesHoldNoSlots(t *testing.T) {
	const dead = 3
	limited := fmt.Sprintf(`{"reconciliation": {"maxConcurrentVerifications": %d, "intervalSeconds": 30}}`, dead)
	for name, tc := range map[string]struct {
		fault  func(w *world.World, nodes []*corev1.Node)
		most   time.Duration
		forbid func(write string) bool
	}{
		"lost":  {func(w *world.World, nodes []*corev1.Node) { readies(w, nodes, corev1.ConditionUnknown) }, 40 * time.Second, nil},
		"stuck": {func(*world.World, []*corev1.Node) {}, 3 * time.Minute, nil},
		"stuck, and deletions are refused": {func(*world.World, []*corev1.Node) {}, 3 * time.Minute,
			func(write string) bool { return write == "delete Pod" }},
	} {
		for _, failover := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, failover %v", name, failover), func(t *testing.T) {
				t.Parallel()
				w := world.Begin(t, "")
				w.Configure(short, limited)
				var gone []*corev1.Node
				for i := range dead {
					gone = append(gone, w.Node(fmt.Sprintf("dead%d", i)))
				}
				on := func(p *corev1.Pod) bool {
					return slices.ContainsFunc(gone, func(n *corev1.Node) bool {
						return n.Name == p.Annotations[workerpod.AnnotationNode]
					})
				}
				neverEnd(w, on)
				l := w.Lead()
				l.Forbid = tc.forbid
				l.Until(5*time.Second, func() bool { return w.Created("verify") == dead })
				well := []*corev1.Node{w.Node("a"), w.Node("b"), w.Node("c"), w.Node("d")}
				tc.fault(w, gone)
				if failover {
					l.Steps(2)
					l = w.Lead()
					l.Forbid = tc.forbid
				}
				most := tc.most
				if tc.forbid != nil { // refused writes are tried again at each look: nothing ever comes to rest
					l.RunFor(most)
					most = 0
				}
				took, ok := l.Until(most, func() bool {
					return !slices.ContainsFunc(well, func(n *corev1.Node) bool { return gated(w, n.Name) })
				})
				if !ok || len(l.Errs) > 0 {
					t.Errorf("after %s there are nodes that are not verified; errors %v", took, l.Errs)
				}
				for _, n := range gone {
					if got := len(w.Pods(n.Name)); got != 1 {
						t.Errorf("%s has %d workers", n.Name, got)
					}
					_, f := w.Get(n.Name)
					if tc.forbid != nil && !strings.Contains(f.Condition.Message, "worker pods do not end") {
						t.Errorf("%s says %+v", n.Name, f.Condition)
					}
				}
			})
		}
	}
}

// neverEnd makes the matching workers run forever, and their kubelet never confirm an end. Other workers pass.
func neverEnd(w *world.World, match func(*corev1.Pod) bool) {
	w.Exit = func(p *corev1.Pod) int {
		if match(p) {
			return world.Runs
		}
		return 0
	}
	w.Hold = match
}

// A pod that does not end, or that the controller may not delete, holds the last slot. The node that waits for the slot
// names the pod.
func TestNodeThatWaitsNamesWhoHoldsTheSlot(t *testing.T) {
	for name, tc := range map[string]struct {
		forbid func(write string) bool
		want   string
	}{
		"it does not end":         {nil, "container runtime"},
		"its deletion is refused": {func(write string) bool { return write == "delete Pod" }, "may not delete Pod"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.OnServer(t, "")
			w.Configure(short, `{"reconciliation": {"maxConcurrentVerifications": 1, "intervalSeconds": 30}}`)
			stuck := w.Node("stuck")
			on := func(p *corev1.Pod) bool { return p.Annotations[workerpod.AnnotationNode] == stuck.Name }
			neverEnd(w, on)
			l := w.Lead()
			l.Forbid = tc.forbid
			l.Until(5*time.Second, func() bool { return w.Created("verify") == 1 })
			holder := w.Pods(stuck.Name)[0].Name
			n := w.Node("n")
			says := func() bool {
				text := w.ConditionText(n.Name)
				return strings.Contains(text, "WaitingForSlot") && strings.Contains(text, holder) && strings.Contains(text, tc.want)
			}
			for end := w.Clock.Now().Add(5 * time.Minute); gated(w, n.Name) && !says() && w.Clock.Now().Before(end); {
				l.RunFor(5 * time.Second)
			}
			if !says() {
				t.Errorf("gated %t, condition %s", gated(w, n.Name), w.ConditionText(n.Name))
			}
		})
	}
}
