package deletion_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// ladder sets a condition, then creates an object, which is cluster-scoped so that it needs no namespace, and then deletes.
const ladder = `{"reconciliation": {"maxRetries": 1}, "nodeManagement": {` + world.Deletes + `, "remediation": {"controlProbe": false,
	"actions": [{"condition": {}, "waitSeconds": 20},
		{"object": {"template": {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 7,
			"metadata": {"annotations": {"remediation.medik8s.io/node-name": "{{node}}"}}}}, "waitSeconds": 20},
		{"delete": {}}]}}}`

// A node that fails after each action gets each action once, in order, even if the controller is killed between any two
// writes.
func TestActionsInOrder(t *testing.T) {
	world.DisturbEveryWrite(t, map[string]world.Path{"condition, object, deletion": {Settings: ladder, Rounds: 12,
		Begin: func(w *world.World) *corev1.Node {
			w.Exit = func(*corev1.Pod) int { return 1 }
			return w.Node("n")
		},
		Check: func(w *world.World, n *corev1.Node) {
			if made := objectsOf(w, n); len(made) != 1 || made[0].Annotations["remediation.medik8s.io/node-name"] != n.Name || made[0].Value != 7 {
				w.Errorf("objects of the node: %+v", made)
			}
		},
		Want: world.Result{Gone: true, Record: "  held= verified=false", Ledger: 3, Deleted: 1},
		Events: map[decide.Reason]int{decide.EventFailed: 3, decide.EventExhausted: 3, decide.EventRemediationStarted: 2,
			decide.EventDeleted(owner.Node): 1}},
	})
}

// All actions on nodes count towards the limit. If it is two per hour, there is no third action in that hour.
func TestActionsCountForTheHourlyLimit(t *testing.T) {
	t.Parallel()
	w := world.Begin(t, strings.Replace(ladder, `"controlProbe": false`, `"controlProbe": false, "maxDeletionsPerHour": 2`, 1))
	w.Exit = func(*corev1.Pod) int { return 1 }
	n := w.Node("n")
	l := w.Lead()
	held := func() bool { return w.Record(n.Name).Held == decide.GuardMaxDeletionsPerHour }
	if _, ok := l.Until(20*time.Minute, held); !ok || len(w.Ledger()) != 2 || len(objectsOf(w, n)) != 1 {
		t.Fatalf("held by %q, ledger %v, record %+v", w.Record(n.Name).Held, w.Ledger(), w.Record(n.Name))
	}
	gone := func() bool {
		return apierrors.IsNotFound(world.API.Get(w.Ctx, client.ObjectKeyFromObject(n), &corev1.Node{}))
	}
	if took, ok := l.Until(2*time.Hour, gone); !ok || took < 30*time.Minute {
		t.Errorf("deleted after %s: %t, record %+v", took, ok, w.Record(n.Name))
	}
}

func objectsOf(w *world.World, n *corev1.Node) []schedulingv1.PriorityClass {
	w.Helper()
	var list schedulingv1.PriorityClassList
	w.Must(world.API.List(w.Ctx, &list))
	return slices.DeleteFunc(list.Items, func(o schedulingv1.PriorityClass) bool {
		return o.Annotations[remediation.AnnotationNodeUID] != string(n.UID)
	})
}

// required reports whether the node has the condition that asks for a repair.
func required(w *world.World, n *corev1.Node) bool {
	w.Helper()
	have, _ := w.Get(n.Name)
	return slices.ContainsFunc(have.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == "node-ready/RemediationRequired" && c.Status == corev1.ConditionTrue
	})
}

// When a node passes, the actions on it are taken back.
func TestActionsAreTakenBackAfterAPass(t *testing.T) {
	t.Parallel()
	w := world.Begin(t, ladder)
	n := w.Node("n")
	set := 0
	w.Exit = func(*corev1.Pod) int { // the object helps
		if required(w, n) {
			set++
		}
		if len(objectsOf(w, n)) > 0 {
			return 0
		}
		return 1
	}
	l := w.Lead()
	l.Drive()
	_, f := w.Get(n.Name)
	if set == 0 {
		t.Error("the condition was never set")
	}
	if f.Gated || !f.Labelled || required(w, n) || len(objectsOf(w, n)) != 0 || len(f.Record.Remediations) != 0 {
		t.Errorf("gated %t, condition %t, objects %v, record %+v", f.Gated, required(w, n), objectsOf(w, n), f.Record)
	}
	if entries := w.Ledger(); len(entries) != 2 { // the condition and the object
		t.Errorf("the ledger has %v", entries)
	}
}

// A person who pauses deletions stops a repairer, too. The condition on which the repairer acts is removed, and comes
// back after the pause.
func TestPauseTakesTheConditionBack(t *testing.T) {
	t.Parallel()
	w := world.Begin(t, strings.Replace(ladder, `"waitSeconds": 20`, `"waitSeconds": 3600`, 1))
	w.Exit = func(*corev1.Pod) int { return 1 }
	n := w.Node("n")
	l := w.Lead()
	reaches := func(what string, done func() bool) {
		t.Helper()
		if _, ok := l.Until(20*time.Minute, done); !ok {
			t.Fatalf("%s: record %+v", what, w.Record(n.Name))
		}
	}
	reaches("the condition is set", func() bool { return required(w, n) })
	w.AnnotateLedger(ledger.AnnotationPaused, "for a while")
	reaches("it is taken back", func() bool { return !required(w, n) && w.Record(n.Name).Held == decide.GuardPaused })
	w.AnnotateLedger(ledger.AnnotationPaused, "false")
	l = w.Lead() // the one before has read the ledger a moment ago
	reaches("and set again", func() bool { return required(w, n) })
}

// helps makes the node fail until the object of an action exists.
func helps(w *world.World, n *corev1.Node) {
	w.Exit = func(*corev1.Pod) int {
		if len(objectsOf(w, n)) > 0 {
			return 0
		}
		return 1
	}
}

// An object that the controller may not delete, or read, stays, and an event says so. The node is released, and
// verified again whenever that is due. Once the permission is granted, the object is deleted within a minute.
func TestObjectThatStaysHoldsUpNothing(t *testing.T) {
	for verb, forbid := range map[string]func(*world.Leader, bool){
		"delete": func(l *world.Leader, is bool) {
			l.Forbid = func(write string) bool { return is && write == "delete Unstructured" }
		},
		"get": func(l *world.Leader, is bool) {
			l.ForbidGet = func(kind string) bool { return is && kind == "Unstructured" }
		},
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, ladder)
			n := w.Node("n")
			helps(w, n)
			l := w.Lead()
			forbid(l, true)
			l.RunFor(10 * time.Minute)
			_, f := w.Get(n.Name)
			left := func() int { return len(w.Record(n.Name).Remediations) }
			if f.Gated || !f.Labelled || required(w, n) || len(objectsOf(w, n)) != 1 || left() != 1 {
				t.Fatalf("gated %t, condition %t, objects %v, record %+v", f.Gated, required(w, n), objectsOf(w, n), f.Record)
			}
			if got := w.EventCount(n.Name, decide.EventRevertRefused); got != 1 {
				t.Errorf("%d events", got)
			}
			w.Patch(n, `{"spec":{"taints":[{"key":"node-ready/unverified","value":"true","effect":"NoSchedule"}]}}`)
			passed := f.Record.Sequence
			l.RunFor(2 * time.Minute)
			if _, f = w.Get(n.Name); f.Gated || f.Record.Sequence == passed || left() != 1 {
				t.Errorf("it is not verified again: gated %t, record %+v", f.Gated, f.Record)
			}
			forbid(l, false)
			if _, ok := l.Until(2*time.Minute, func() bool { return len(objectsOf(w, n)) == 0 && left() == 0 }); !ok {
				t.Errorf("objects %v, record %+v", objectsOf(w, n), w.Record(n.Name))
			}
		})
	}
}

// The remains of an earlier round do not count for the next one. All entries are tried again from the first.
func TestObjectThatStaysIsOfNoLaterRound(t *testing.T) {
	t.Parallel()
	w := world.Begin(t, strings.Replace(ladder, `"controlProbe": false`, `"controlProbe": false, "neverVerifiedOnly": false`, 1))
	n := w.Node("n")
	helps(w, n)
	l := w.Lead()
	l.Forbid = func(write string) bool { return write == "delete Unstructured" }
	l.RunFor(10 * time.Minute)
	if r := w.Record(n.Name); len(r.Remediations) != 1 {
		t.Fatalf("record %+v", r)
	}
	w.Exit = func(*corev1.Pod) int { return 1 }
	w.Patch(n, `{"spec":{"taints":[{"key":"node-ready/unverified","value":"true","effect":"NoSchedule"}]}}`)
	if _, ok := l.Until(10*time.Minute, func() bool { return required(w, n) }); !ok {
		t.Fatalf("the condition is not set: record %+v", w.Record(n.Name))
	}
	if _, ok := l.Until(10*time.Minute, func() bool { return len(objectsOf(w, n)) == 2 }); !ok {
		t.Fatalf("no object is created: record %+v", w.Record(n.Name))
	}
	l.Forbid, w.Exit = nil, func(*corev1.Pod) int { return 0 }
	done := func() bool { return len(objectsOf(w, n)) == 0 && len(w.Record(n.Name).Remediations) == 0 }
	if _, ok := l.Until(2*time.Minute, done); !ok {
		t.Errorf("objects stay: record %+v", w.Record(n.Name))
	}
}
