package effects

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
)

// short are attempts that end soon.
const short = `{"worker": {"startTimeoutSeconds": 20, "timeoutSeconds": 20, "checkTimeoutSeconds": 10},
	"reconciliation": {"maxRetries": 3, "exhaustedRetrySeconds": 600}}`

// configureDeletion is short, with deletion on.
func (w *world) configureDeletion() { w.configure(short, `{"nodeManagement": {`+deletes+`}}`) }

// until runs a leader until done, for so long at most, by the world's clock. It reports how long that took, and whether
// it is done.
func (l *leader) until(most time.Duration, done func() bool) (took time.Duration, ok bool) {
	l.w.Helper()
	began := l.w.clock.Now()
	for n := 0; ; n++ {
		if n == maxPasses {
			l.w.Fatalf("the last writes after %s: %v", took, l.writes[max(0, len(l.writes)-20):])
		}
		took = l.w.clock.Now().Sub(began)
		if done() || took >= most {
			return took, done()
		}
		if changed, wait := l.turn(); !changed {
			l.w.clock.advance(min(wait, most-took))
		}
	}
}

// ready is what the node's kubelet, or the node lifecycle controller in its place, says of it.
func (w *world) ready(node string, status corev1.ConditionStatus) {
	w.Helper()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status)
	n := &corev1.Node{}
	n.Name = node
	w.must(api.Status().Patch(w.ctx, n, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
}

// stuckOn plays a kubelet that cannot end the workers of a node.
func (w *world) stuckOn(node string) {
	on := func(p *corev1.Pod) bool { return !isProbe(p) && p.Annotations[workerpod.AnnotationNode] == node }
	w.exit = func(p *corev1.Pod) int {
		if on(p) {
			return runs
		}
		return 0
	}
	w.holds = on
}

// A container runtime that hangs neither starts a worker nor confirms its end. The pod goes without grace, Ready or
// not, and further attempts show what is wrong.
func TestHungRuntime(t *testing.T) {
	const ready, notReady = corev1.ConditionTrue, corev1.ConditionFalse
	for name, status := range map[string]corev1.ConditionStatus{"Ready": ready, "not Ready": notReady} {
		for _, failover := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, failover %v", name, failover), func(t *testing.T) {
				t.Parallel()
				w := begin(t, short)
				w.exit, w.lingers = func(*corev1.Pod) int { return stays }, true
				n := w.node("n")
				w.ready(n.Name, status)
				l := w.leads()
				terminating := func() bool { p := w.pods(n.Name); return len(p) == 1 && p[0].DeletionTimestamp != nil }
				if took, ok := l.until(time.Minute, terminating); !ok {
					t.Fatalf("after %s: %+v", took, w.record(n.Name))
				}
				if failover {
					w.clock.advance(time.Hour) // nobody leads
					l = w.leads()
				}
				took, ok := l.until(3*time.Minute, func() bool { return w.born("verify") == 2 })
				if !ok || took < time.Minute {
					t.Errorf("the second worker started after %s: %v, %+v", took, ok, w.record(n.Name))
				}
				l.until(4*time.Minute, func() bool { return w.record(n.Name).Inconclusive == 3 })
				if r := w.record(n.Name); r.Inconclusive != 3 || r.Attempts != 0 || r.LastReason != attempt.ReasonStartTimeout {
					t.Errorf("%+v", r)
				}
				w.exit, w.lingers = func(*corev1.Pod) int { return 0 }, false
				l.drive()
				if _, f := w.get(n.Name); f.Gated || len(l.errs) > 0 {
					t.Errorf("%+v, errors %v", f.Record, l.errs)
				}
			})
		}
	}
}

// A worker that its kubelet cannot end exhausts the node, with a condition that says so, and in time leads to its
// deletion beside a passing probe. A failover delays that.
func TestWorkerStuck(t *testing.T) {
	for _, failover := range []string{"", "while it terminates", "once that is recorded"} {
		t.Run("failover "+failover, func(t *testing.T) {
			t.Parallel()
			w := begin(t, "")
			w.configureDeletion()
			w.verified("control")
			n := w.node("n")
			w.stuckOn(n.Name)
			l := w.leads()
			if took, ok := l.until(2*time.Minute, func() bool { return w.record(n.Name).Sequence == 1 }); !ok {
				t.Fatalf("after %s: %+v", took, w.record(n.Name))
			}
			if r := w.record(n.Name); r.LastReason != attempt.ReasonTimeout || r.Attempts != 1 {
				t.Errorf("%+v", r)
			}
			l.until(30*time.Second, func() bool { return false })
			if _, f := w.get(n.Name); !says(f.Condition, "its container has not ended") {
				t.Errorf("it says %+v", f.Condition)
			}
			if failover == "while it terminates" {
				w.clock.advance(time.Hour)
				l = w.leads()
			}
			recorded := func() bool { return w.record(n.Name).LastReason == attempt.ReasonWorkerStuck }
			if took, ok := l.until(3*time.Minute, recorded); !ok || len(w.gone()) > 0 {
				t.Fatalf("after %s: %+v, deleted %v", took, w.record(n.Name), w.gone())
			}
			events, born := w.emitted(n.Name, decide.EventExhausted), w.born("verify")
			if r := w.record(n.Name); r.Sequence != 2 || r.Attempts != 3 || !r.Probed || born != 1 || events != 1 {
				t.Errorf("%+v, %d workers, %d events", r, born, events)
			}
			if failover == "once that is recorded" {
				w.clock.advance(time.Minute)
				l = w.leads()
			}
			took, ok := l.until(15*time.Minute, func() bool { return len(w.gone()) > 0 })
			if !ok || took < time.Minute && failover == "once that is recorded" {
				t.Errorf("deleted after %s: %v, %+v", took, ok, w.record(n.Name))
			}
			if len(l.errs) > 0 {
				t.Error(l.errs)
			}
		})
	}
}

// A node whose worker could not be ended goes on once it has. Until then it costs a few writes an hour.
func TestWorkerStuckEnds(t *testing.T) {
	w := begin(t, short)
	n := w.node("n")
	w.stuckOn(n.Name)
	l := w.leads()
	stuck := func() bool { return w.record(n.Name).LastReason == attempt.ReasonWorkerStuck }
	if _, ok := l.until(5*time.Minute, stuck); !ok {
		t.Fatalf("%+v", w.record(n.Name))
	}
	l.until(time.Minute, func() bool { return false })
	_, f := w.get(n.Name)
	if !says(f.Condition, "cannot be ended") || f.Condition.Reason != marks.ReasonRetriesExhausted {
		t.Errorf("it says %+v", f.Condition)
	}
	before := l.written()
	l.until(time.Hour, func() bool { return false })
	// A record and a condition every eight to ten minutes.
	if writes := l.written() - before; writes > 16 || w.born("verify") != 1 {
		t.Errorf("%d writes in an hour: %v", writes, l.writes[before:])
	}
	w.exit, w.holds = func(*corev1.Pod) int { return 0 }, nil
	if took, ok := l.until(time.Minute, func() bool { return !w.gated(n.Name) }); !ok {
		t.Errorf("after %s: %+v", took, w.record(n.Name))
	}
}

func says(c *corev1.NodeCondition, what string) bool {
	return c != nil && strings.Contains(c.Message, what)
}

func (w *world) gated(node string) bool { _, f := w.get(node); return f.Gated }

// What is no fault of the node is not held against it: it waits, says what for, and goes on when that ends.
func TestWorkerThatDoesNotEndChargesNobody(t *testing.T) {
	for name, tc := range map[string]struct {
		first func(w *world)                       // once the workers run
		begin func(w *world, nodes []*corev1.Node) // once their failure is recorded
		wait  time.Duration
		end   func(w *world, nodes []*corev1.Node) // of the fault
		later time.Duration                        // from then until the kubelets go on
		says  string
	}{
		"a partition of a zone": {wait: 10 * time.Minute, says: "Ready is Unknown",
			begin: func(w *world, nodes []*corev1.Node) { w.readies(nodes, corev1.ConditionUnknown) },
			end:   func(w *world, nodes []*corev1.Node) { w.readies(nodes, corev1.ConditionTrue) },
			later: 10 * time.Second},
		"a slow teardown": {wait: 50 * time.Second, says: "its container has not ended"},
		"a foreign finalizer": {wait: 10 * time.Minute, says: "example.com/keep",
			first: func(w *world) { w.finalize(`["example.com/keep"]`) },
			end:   func(w *world, _ []*corev1.Node) { w.finalize("null") }},
	} {
		for _, failover := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, failover %v", name, failover), func(t *testing.T) {
				t.Parallel()
				w := begin(t, "")
				w.configureDeletion()
				w.verified("control")
				nodes := []*corev1.Node{w.node("a"), w.node("b")}
				of := func(p *corev1.Pod) bool { return !isProbe(p) }
				w.exit, w.holds = verifies(runs), of
				l := w.leads()
				l.until(5*time.Second, func() bool { return w.born("verify") == len(nodes) })
				if tc.first != nil {
					tc.first(w)
				}
				all := func(is func(node string) bool) func() bool {
					return func() bool { return !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return !is(n.Name) }) }
				}
				if took, ok := l.until(2*time.Minute, all(func(n string) bool { return w.record(n).Sequence == 1 })); !ok {
					t.Fatalf("after %s: %+v", took, w.record(nodes[0].Name))
				}
				if tc.begin != nil {
					tc.begin(w, nodes)
				}
				if failover {
					l.until(20*time.Second, func() bool { return false })
					l = w.leads()
				}
				l.until(tc.wait, func() bool { return false })
				for _, n := range nodes {
					_, f := w.get(n.Name)
					if !says(f.Condition, tc.says) || f.Condition.Status != corev1.ConditionUnknown {
						t.Errorf("it says %+v", f.Condition)
					}
				}
				if tc.end != nil {
					tc.end(w, nodes)
				}
				l.until(tc.later, func() bool { return false })
				w.exit, w.holds = verifies(0), nil
				if took, ok := l.until(time.Minute, all(func(n string) bool { return !w.gated(n) })); !ok {
					t.Errorf("after %s: %+v", took, w.record(nodes[0].Name))
				}
				for _, n := range nodes {
					if r := w.record(n.Name); r.Sequence != 2 || w.emitted(n.Name, decide.EventExhausted) != 0 {
						t.Errorf("%+v", r)
					}
				}
				if len(w.gone()) > 0 || len(l.errs) > 0 {
					t.Errorf("deleted %v, errors %v", w.gone(), l.errs)
				}
			})
		}
	}
}

func (w *world) readies(nodes []*corev1.Node, status corev1.ConditionStatus) {
	w.Helper()
	for _, n := range nodes {
		w.ready(n.Name, status)
	}
}

// finalize gives all workers that verify these finalizers. One that is terminating
// takes no new ones.
func (w *world) finalize(finalizers string) {
	w.Helper()
	for _, p := range w.pods("") {
		if !isProbe(&p) && (p.DeletionTimestamp == nil || finalizers == "null") {
			patch := fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, finalizers)
			w.must(client.IgnoreNotFound(api.Patch(w.ctx, &p, client.RawPatch(types.MergePatchType, patch))))
		}
	}
}

// Nodes whose kubelet died under a running worker hold no slots: the others are verified as soon as those are known to
// be lost. So it is with workers that cannot be ended.
func TestDeadNodesHoldNoSlots(t *testing.T) {
	const dead = 3
	limited := fmt.Sprintf(`{"reconciliation": {"maxConcurrentVerifications": %d, "intervalSeconds": 30}}`, dead)
	for name, tc := range map[string]struct {
		fault func(w *world, nodes []*corev1.Node)
		most  time.Duration
	}{
		"lost":  {func(w *world, nodes []*corev1.Node) { w.readies(nodes, corev1.ConditionUnknown) }, 40 * time.Second},
		"stuck": {func(*world, []*corev1.Node) {}, 3 * time.Minute},
	} {
		for _, failover := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, failover %v", name, failover), func(t *testing.T) {
				t.Parallel()
				w := begin(t, "")
				w.configure(short, limited)
				var gone []*corev1.Node
				for i := range dead {
					gone = append(gone, w.node(fmt.Sprintf("dead%d", i)))
				}
				on := func(p *corev1.Pod) bool {
					return slices.ContainsFunc(gone, func(n *corev1.Node) bool {
						return n.Name == p.Annotations[workerpod.AnnotationNode]
					})
				}
				w.exit = func(p *corev1.Pod) int {
					if on(p) {
						return runs
					}
					return 0
				}
				w.holds = on
				l := w.leads()
				l.until(5*time.Second, func() bool { return w.born("verify") == dead })
				well := []*corev1.Node{w.node("a"), w.node("b"), w.node("c"), w.node("d")}
				tc.fault(w, gone)
				if failover {
					l.turns(2)
					l = w.leads()
				}
				took, ok := l.until(tc.most, func() bool {
					return !slices.ContainsFunc(well, func(n *corev1.Node) bool { return w.gated(n.Name) })
				})
				if !ok || len(l.errs) > 0 {
					t.Errorf("after %s there are nodes that are not verified; errors %v", took, l.errs)
				}
				for _, n := range gone {
					if got := len(w.pods(n.Name)); got != 1 {
						t.Errorf("%s has %d workers", n.Name, got)
					}
				}
			})
		}
	}
}
