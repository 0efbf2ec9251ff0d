package remediation_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	backends "github.com/kube-node-ready/kube-node-ready/internal/remediation"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// heldBy creates the given number of nodes whose remediation is held by the guard, with evidence that costs a list.
func heldBy(w *world.World, guard string, count int) {
	w.Helper()
	for i := range count {
		n := w.Exhausted(fmt.Sprint(i), world.Pooled)
		if guard != owner.Guard {
			w.Claim(n)
		}
		if guard == decide.GuardSparePods {
			w.OrdinaryPod(n)
		}
	}
	if guard == decide.GuardPaused {
		w.AnnotateLedger(ledger.AnnotationPaused, "true")
	}
}

// While a guard holds it, a node costs no read of the API server's latest state, whichever guard holds it: no GET of the
// node, and no list but one of its pods at each look, from the API server's memory. NodeClaims are listed once in ten
// seconds for all nodes together.
func TestHeldNodesAreLookedAtCheaply(t *testing.T) {
	const nodes, looks = 5, 10
	for guard, settings := range map[string]string{
		decide.GuardSparePods: `{"nodeManagement": {` + world.Deletes + `}}`,
		owner.Guard:           `{"nodeManagement": {` + world.Deletes + `}}`,
		decide.GuardDryRun:    `{"nodeManagement": {` + world.Deletes + `, "remediation": {"dryRun": true}}}`,
		decide.GuardPaused:    `{"nodeManagement": {` + world.Deletes + `}}`,
	} {
		t.Run(guard, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, settings)
			heldBy(w, guard, nodes)
			l := w.Lead()
			l.Reads = nil
			began := time.Now()
			for range looks {
				l.Deliver()
				l.ReconcileAll()
			}
			for _, name := range w.NodeNames {
				if r := w.Record(name); r.Held != guard {
					t.Fatalf("record %+v", r)
				}
			}
			latest, inMemory := l.LiveLists()
			claims := 1 + int(time.Since(began)/(10*time.Second))
			latest = slices.DeleteFunc(latest, func(list string) bool {
				if list == "NodeClaimList" {
					claims--
				}
				return list == "NodeClaimList" && claims >= 0
			})
			if len(latest) > 0 || len(l.Reads) > 0 || len(inMemory) > looks*nodes {
				t.Errorf("%d looks at each of %d nodes: lists %v, reads of nodes %v, and %d lists from memory",
					looks, nodes, latest, l.Reads, len(inMemory))
			}
		})
	}
}

// While nothing changes, the node reconciler leaves a held node to the remediation reconciler, which looks at all of
// them together, once in each interval. The next attempt is further away than the next turn of the sweep.
func TestHeldNodeIsLookedAtOnceAnInterval(t *testing.T) {
	w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`, "remediation": {"dryRun": true}},
		"reconciliation": {"intervalSeconds": 30}}`)
	heldBy(w, decide.GuardDryRun, 2)
	l := w.Lead()
	l.Steps(5) // until their conditions say so
	var rounds []time.Time
	for _, name := range w.NodeNames {
		l.TakeConsidered()
		own, err := l.Nodes.Reconcile(w.Ctx, world.Request(name))
		if w.Must(err); own.RequeueAfter != 0 || len(l.TakeConsidered()) != 1 {
			t.Errorf("%s: the node reconciler looks again in %s", name, own.RequeueAfter)
		}
		held, err := l.Remediations.Reconcile(w.Ctx, world.Request(name))
		if w.Must(err); held.RequeueAfter <= 0 || held.RequeueAfter > 30*time.Second || *held.Priority >= 0 {
			t.Errorf("%s: the remediation reconciler returns %+v", name, held)
		}
		rounds = append(rounds, w.Clock.Now().Add(held.RequeueAfter))
		w.Clock.Advance(time.Second)
	}
	if !rounds[0].Equal(rounds[1]) {
		t.Errorf("looks at %v", rounds)
	}
}

// What holds a node is looked at again once an interval. So a node that becomes deletable without a change to the Node
// object is deleted within that time.
func TestHeldNodeIsReadAgain(t *testing.T) {
	const interval = 30 * time.Second
	for what, tc := range map[string]struct {
		holds, ends func(*world.World, *corev1.Node)
	}{
		"its last ordinary pod ends": {
			holds: func(w *world.World, n *corev1.Node) {
				w.Claim(n)
				w.OrdinaryPod(n)
			},
			ends: func(w *world.World, n *corev1.Node) {
				w.Must(w.API.Delete(w.Ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace,
					Name: "ordinary-" + n.Name}}, client.GracePeriodSeconds(0)))
			},
		},
		"its ordinary pod completes": {
			holds: func(w *world.World, n *corev1.Node) {
				w.Claim(n)
				w.OrdinaryPod(n)
			},
			ends: func(w *world.World, n *corev1.Node) {
				ordinary := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "ordinary-" + n.Name}}
				w.Status(ordinary, `{"status":{"phase":"Succeeded"}}`)
			},
		},
		"its owner no longer opts it out": {
			holds: func(w *world.World, n *corev1.Node) { w.Must(optOut(w, n, `"true"`)) },
			ends:  func(w *world.World, n *corev1.Node) { w.Must(optOut(w, n, `null`)) },
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`, "remediation": {"controlProbe": false}},
				"reconciliation": {"intervalSeconds": 30}}`)
			w.Exit = func(*corev1.Pod) int { return 1 }
			n := w.Exhausted("n", world.Pooled)
			tc.holds(w, n)
			l := w.Lead()
			deleted := func() bool { return w.Deleting(n.Name) }
			if after, deleted := l.Until(5*time.Minute, deleted); deleted {
				t.Fatalf("it is deleted after %s, although a guard holds it", after)
			}
			tc.ends(w, n)
			l.Remediations.Owners = backends.New(l.Live(), l.Writer()) // which reads NodeClaims every ten seconds of real time
			if took, ok := l.Until(time.Hour, deleted); !ok || took > interval {
				t.Errorf("deleted: %t, after %s", ok, took)
			}
		})
	}
}

// optOut sets karpenter.sh/do-not-disrupt on the node's NodeClaim, which it makes if there is none.
func optOut(w *world.World, n *corev1.Node, value string) error {
	c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + n.Name}}
	if !w.Deleting(n.Name) {
		patch := `{"metadata":{"annotations":{"` + karpv1.DoNotDisruptAnnotationKey + `":` + value + `}}}`
		return w.API.Patch(w.Ctx, c, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	w.Claim(n)
	return optOut(w, n, value)
}

// A deletion is decided on evidence that was read for it. What earlier looks at other nodes have left, and what the API
// server has in memory, shows no guard that holds it.
func TestActsOnFreshEvidence(t *testing.T) {
	for guard, since := range map[string]func(*world.World, *world.Leader, *corev1.Node){
		decide.GuardSparePods: func(w *world.World, l *world.Leader, n *corev1.Node) {
			l.OldPods = &corev1.PodList{}
			w.OrdinaryPod(n)
		},
		decide.GuardPaused: func(w *world.World, _ *world.Leader, _ *corev1.Node) {
			w.AnnotateLedger(ledger.AnnotationPaused, "a person")
		},
		decide.GuardDoNotDelete: func(w *world.World, _ *world.Leader, n *corev1.Node) {
			w.Must(optOut(w, n, `"true"`))
		},
		owner.Guard: func(w *world.World, _ *world.Leader, n *corev1.Node) {
			c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + n.Name}}
			patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"nodeName":"another"}}`))
			w.Must(w.API.Status().Patch(w.Ctx, c, patch))
		},
		decide.GuardMaxUnhealthy: func(w *world.World, _ *world.Leader, _ *corev1.Node) {
			for i := range 3 {
				w.WriteRecord(w.Node(fmt.Sprint("failed", i), world.Pooled), w.Failures(1))
			}
		},
		decide.GuardControlPlane: func(w *world.World, l *world.Leader, n *corev1.Node) {
			l.StaleNodes[n.Name], _ = w.Get(n.Name)
			w.Patch(n, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`)
		},
	} {
		t.Run(guard, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"nodeManagement": {`+world.Deletes+`, "remediation": {"maxUnhealthy": 2}}}`)
			other, n := w.Exhausted("other", world.Pooled), w.Exhausted("n", world.Pooled)
			w.Claim(n)
			l := w.Lead()
			l.Deliver()
			w.Must(l.ReconcileRemediation(other))
			if r := w.Record(other.Name); r.Held != owner.Guard { // the last guard, so all evidence was read
				t.Fatalf("record %+v", r)
			}
			since(w, l, n)
			w.Must(l.ReconcileRemediation(n))
			if r := w.Record(n.Name); r.Held != guard || r.Deletion != nil || w.Deleting(n.Name) {
				t.Errorf("record %+v", r)
			}
		})
	}
}
