package chaos

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// begins has a node join that passes.
func (t *tale) begins() {
	t.node(others(same))
	t.worker(1, well)
	t.node(releases)
	t.worker(1, well, ends)
}

// fails has the node's next attempt fail, and a probe pass beside it.
func (t *tale) fails(change ...func(*marks.Record)) {
	next := int(recordOf(t.have["minions/n"].(*corev1.Node)).Sequence) + 1
	fails := &ran{Node: "u", Boot: boot(t.have["minions/n"].(*corev1.Node)), Checks: "checks-a", Exit: 1}
	t.worker(next, fails)
	t.node(func(n *corev1.Node) {
		comes(attempt.Failed, 1)(n)
		records(func(r *marks.Record) {
			r.Probed = true
			for _, f := range change {
				f(r)
			}
		})(n)
		if !gated(n) {
			n.Spec.Taints = []corev1.Taint{{Key: gatingKey, Effect: corev1.TaintEffectNoSchedule}}
			delete(n.Labels, verifiedLabel)
		}
	})
	t.worker(next, fails, ends)
}

// recovers has the node's next attempt pass, after which its actions are to be taken back.
func (t *tale) recovers() {
	next := int(recordOf(t.have["minions/n"].(*corev1.Node)).Sequence) + 1
	t.worker(next, well)
	t.node(func(n *corev1.Node) {
		releases(n)
		says(corev1.ConditionTrue, "ChecksPassed", "")(n)
		records(func(r *marks.Record) {
			r.Suspicion = nil
			for i := range r.Remediations {
				r.Remediations[i].State = marks.RemediationReverting
			}
		})(n)
	})
	t.worker(next, well, ends)
}

// refuses begins a fault: the controller has no right to do these with objects.
func (t *tale) refuses(verbs ...string) {
	e := kindOf(rightsRefused).draw(rand.New(rand.NewPCG(1, 1))) //nolint:gosec // no secret
	e.rights, e.began = rightsToObjects(verbs...), time.Unix(1, 0)
	t.c.begin(e)
}

// interferes writes the condition of our type in another program's name.
func (t *tale) interferes() {
	t.node(others(func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: required, Status: corev1.ConditionFalse, Reason: "Chaos"})
	}))
}

// becomes puts the last action of the record into a state.
func becomes(state string) func(*corev1.Node) {
	return records(func(r *marks.Record) { r.Remediations[len(r.Remediations)-1].State = state })
}

func (t *tale) intends(index int32, kind string) {
	t.node(records(func(r *marks.Record) {
		a := marks.Remediation{Action: index, State: marks.RemediationIntended, Sequence: r.Sequence,
			Time: time.Unix(1000+t.revision, 0)}
		if kind == setCondition {
			a.Condition, a.Status = required, corev1.ConditionTrue
		} else {
			a.APIVersion, a.Kind, a.Namespace, a.Name = "v1", "ConfigMap", objectsIn, "o"
		}
		r.Remediations = append(r.Remediations, a)
	}))
}

// enters enters what was intended in the ledger, beside what change adds.
func (t *tale) enters(kind string, change ...func(*corev1.ConfigMap)) {
	t.enter(func(cm *corev1.ConfigMap) {
		kinds := map[string]string{setCondition: marks.KindCondition, makeObject: "ConfigMap", deleteOwner: "NodeClaim"}
		at := map[string]int32{makeObject: 1, deleteOwner: 2}[kind]
		t.entries[len(t.entries)-1] = ledger.Entry{UID: "u", Node: "n", Kind: kinds[kind], Index: &at,
			Time: metav1.NewTime(time.Unix(1000+t.revision, 0))}
		_ = ledger.Contents{Entries: t.entries}.Write(cm) // it is small
		for _, f := range change {
			f(cm)
		}
	})
}

func reports(of corev1.NodeConditionType, status corev1.ConditionStatus, at int64) func(*corev1.Node) {
	return func(n *corev1.Node) {
		var kept []corev1.NodeCondition
		for _, c := range n.Status.Conditions {
			if c.Type != of {
				kept = append(kept, c)
			}
		}
		kept = append(kept, corev1.NodeCondition{Type: of, Status: status, LastTransitionTime: metav1.Unix(at, 0)})
		n.Status.Conditions = kept
	}
}

func (t *tale) sets(status corev1.ConditionStatus) { t.node(reports(required, status, 1)) }

func (t *tale) makes() {
	t.tell("configmaps/"+objectsIn+"/o", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: objectsIn, Name: "o",
		Annotations: map[string]string{aboutNode: "u", aboutName: "n"}}})
}

// condition carries out the first entry, a condition.
func (t *tale) condition() {
	t.intends(0, setCondition)
	t.enters(setCondition)
	t.sets(corev1.ConditionTrue)
	t.node(becomes(marks.RemediationStarted))
}

// second goes from there to where the second entry may be tried.
func (t *tale) second() {
	t.passes(10 * time.Second)
	t.fails()
	t.node(becomes(marks.RemediationReverting))
	t.sets(corev1.ConditionFalse)
	t.node(becomes(marks.RemediationEnded))
}

// object carries out the second entry, an object.
func (t *tale) object() {
	t.intends(1, makeObject)
	t.enters(makeObject)
	t.makes()
	t.node(becomes(marks.RemediationStarted))
}

// suspicion is one that broken leads to.
func suspicion(at int64) *marks.Suspicion {
	transition := time.Unix(at, 0).UTC()
	return &marks.Suspicion{Type: suspectTypes[0], Status: corev1.ConditionTrue, Transition: &transition}
}

func suspects(at int64, change ...func(*corev1.Node)) func(*corev1.Node) {
	return func(n *corev1.Node) {
		records(func(r *marks.Record) { r.Suspicion = suspicion(at) })(n)
		for _, f := range change {
			f(n)
		}
	}
}

func broken(at int64) func(*corev1.Node) { return reports(suspectTypes[0], corev1.ConditionTrue, at) }

func closes(n *corev1.Node) {
	n.Spec.Taints, n.Labels = []corev1.Taint{{Key: gatingKey, Effect: corev1.TaintEffectNoSchedule}}, map[string]string{}
}

// asks makes a request that the controller acts on.
func (t *tale) asks(id string) {
	t.node(others(func(n *corev1.Node) { n.Annotations[verifyRequested] = id }))
	t.node(records(func(r *marks.Record) { r.Suspicion = &marks.Suspicion{Request: id} }))
}

// answered answers request 1.
func answered(outcome attempt.Outcome) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Annotations[verifyCompleted], n.Annotations[verifyResult] = "1", string(outcome)
		records(func(r *marks.Record) { r.Suspicion, r.Request = nil, "1" })(n)
	}
}

// neighbour is another node, whose last attempt had the outcome.
func (t *tale) neighbour(outcome attempt.Outcome) {
	t.tell("minions/m", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m", Annotations: map[string]string{
		marks.AnnotationRecord: marks.Record{NodeUID: "m", Sequence: 1, LastOutcome: outcome, Attempts: 1}.Encode()}}})
}

// Each rule about suspicions, requests and actions faults what breaks it, and nothing else.
func TestCheckerOfRepairs(t *testing.T) {
	for name, tc := range map[string]struct {
		tell func(*tale)
		want string // part of a fault; empty for none
	}{
		"all actions, then a pass": {func(t *tale) {
			t.begins()
			t.fails()
			t.condition()
			t.second()
			t.object()
			t.passes(10 * time.Second)
			t.recovers()
			t.tell("configmaps/"+objectsIn+"/o", nil)
			t.node(records(func(r *marks.Record) { r.Remediations = nil }))
		}, ""},
		"all actions": {func(t *tale) {
			t.node(others(same))
			t.claim(same)
			t.fails()
			t.condition()
			t.second()
			t.object()
			t.passes(10 * time.Second)
			t.fails()
			t.node(records(func(r *marks.Record) { r.Deletion = &marks.Deletion{Kind: "NodeClaim", Name: "c", UID: "cu"} }))
			t.enters(deleteOwner)
			t.claim(func(c *karpv1.NodeClaim) { c.DeletionTimestamp = &metav1.Time{} })
		}, "is not verified"},
		"a deletion before the second action": {func(t *tale) {
			t.node(others(same))
			t.claim(same)
			t.fails()
			t.condition()
			t.second()
			t.node(records(func(r *marks.Record) { r.Deletion = &marks.Deletion{Kind: "NodeClaim", Name: "c", UID: "cu"} }))
			t.enters(deleteOwner)
			t.claim(func(c *karpv1.NodeClaim) { c.DeletionTimestamp = &metav1.Time{} })
		}, "is deleted, of [condition object delete]: entry 2 is tried, and the one before was not carried out"},
		"an action on a node that passed": {func(t *tale) { t.begins(); t.condition() }, "an action is intended after"},
		"an action on a failure from before the request": {func(t *tale) {
			t.begins()
			t.fails()
			t.asks("1")
			t.condition()
		}, "no attempt failed since the node was suspected"},
		"an action after an opt-out": {func(t *tale) {
			t.begins()
			t.fails()
			t.node(others(func(n *corev1.Node) { n.Annotations["node-ready/do-not-delete"] = "true" }))
			t.condition()
		}, "although node-ready/do-not-delete was accepted"},
		"an action without a probe": {func(t *tale) {
			t.begins()
			t.fails(func(r *marks.Record) { r.Probed = false })
			t.condition()
		}, "no probe passed beside the last failure"},
		"an action while paused": {func(t *tale) {
			t.begins()
			t.fails()
			t.intends(0, setCondition)
			t.enters(setCondition, func(cm *corev1.ConfigMap) { cm.Annotations[ledger.AnnotationPaused] = "true" })
		}, "while deletions are paused"},
		"an action beside too many that failed": {func(t *tale) {
			t.neighbour(attempt.Failed)
			t.begins()
			t.fails()
			t.condition()
		}, "an action is intended while 2 of 2 nodes failed"},
		"an action beside another that is in flight": {func(t *tale) {
			t.neighbour(attempt.Passed)
			t.begins()
			t.fails()
			t.intends(0, setCondition)
			t.c.ledger["m"] = metav1.NewTime(time.Unix(1, 0))
			t.enters(setCondition)
		}, "1 other nodes of the pool are still being deleted"},
		"an action beside another whose node passed": {func(t *tale) {
			t.neighbour(attempt.Passed)
			t.begins()
			t.fails()
			t.c.ever["m"].passedAt = time.Unix(2, 0)
			t.c.ledger["m"] = metav1.NewTime(time.Unix(1, 0))
			t.condition()
		}, "is not verified"},
		"an action too many in an hour": {func(t *tale) {
			t.c.settings.perHour = 0
			t.begins()
			t.fails()
			t.condition()
		}, "1 actions in an hour, the limit is 0"},
		"an object that is refused": {func(t *tale) {
			t.refuses("create")
			t.begins()
			t.fails()
			t.condition()
			t.second()
			t.node(records(func(r *marks.Record) { r.Held, r.HeldMessage = guardAction, "configmaps is forbidden" }))
		}, ""},
		"an object that may not be deleted": {func(t *tale) {
			t.refuses("delete")
			t.begins()
			t.fails()
			t.condition()
			t.second()
			t.object()
			t.passes(10 * time.Second)
			t.recovers()
			t.node(records(func(r *marks.Record) { r.Remediations = r.Remediations[1:] }))
		}, ""},
		"an object that may not be deleted is forgotten": {func(t *tale) {
			t.refuses("delete")
			t.begins()
			t.fails()
			t.condition()
			t.second()
			t.object()
			t.passes(10 * time.Second)
			t.recovers()
			t.node(records(func(r *marks.Record) { r.Remediations = nil }))
		}, "object o is left"},
		"an object is refused for a while": {func(t *tale) {
			t.c.refusesBriefly(rightsToObjects("get"))
			t.begins()
			t.fails()
			t.node(records(func(r *marks.Record) { r.Held, r.HeldMessage = guardAction, "configmaps is forbidden" }))
		}, "n is not verified"},
		"an object is held after that": {func(t *tale) {
			t.c.refusesBriefly(rightsToObjects("get"))
			t.c.granted = time.Unix(1, 0)
			t.begins()
			t.passes(10 * time.Second)
			t.fails()
			t.node(records(func(r *marks.Record) { r.Held, r.HeldMessage = guardAction, "configmaps is forbidden" }))
		}, "nothing refuses it"},
		"a condition that another program wrote": {func(t *tale) {
			t.begins()
			t.interferes()
			t.fails()
			t.node(records(func(r *marks.Record) {
				r.Held, r.HeldMessage = guardAction, "another program already set the condition"
			}))
		}, "n is not verified"},
		"a condition that another program wrote is overwritten": {func(t *tale) {
			t.begins()
			t.interferes()
			t.fails()
			t.sets(corev1.ConditionTrue)
		}, "the condition that another program wrote is changed"},
		"a condition that another program wrote is to be set": {func(t *tale) {
			t.begins()
			t.interferes()
			t.fails()
			t.intends(0, setCondition)
		}, "although another program wrote it"},
		"the next entry is tried in place of a refused object": {func(t *tale) {
			t.refuses("create")
			t.begins()
			t.claim(same)
			t.fails()
			t.condition()
			t.second()
			t.node(records(func(r *marks.Record) { r.Held = guardAction }))
			t.node(records(func(r *marks.Record) { r.Deletion = &marks.Deletion{Kind: "NodeClaim", Name: "c", UID: "cu"} }))
			t.enters(deleteOwner)
			t.claim(func(c *karpv1.NodeClaim) { c.DeletionTimestamp = &metav1.Time{} })
		}, "the one before was not carried out"},
		"an object that is held and not refused": {func(t *tale) {
			t.begins()
			t.fails()
			t.node(records(func(r *marks.Record) { r.Held = guardAction }))
		}, "nothing refuses it"},
		"a second action too many in an hour": {func(t *tale) {
			t.c.settings.perHour = 1
			t.begins()
			t.fails()
			t.condition()
			t.second()
			t.object()
		}, "2 actions in an hour, the limit is 1"},
		"the entry of an action is overwritten": {func(t *tale) {
			t.begins()
			t.fails()
			t.condition()
			t.second()
			t.entries = nil
			t.object()
		}, "the ledger has lost the entry of an action"},
		"an action that has two entries": {func(t *tale) {
			t.begins()
			t.fails()
			t.intends(0, setCondition)
			t.enters(setCondition)
			t.node(records(func(r *marks.Record) { r.Remediations[0].Time = time.Unix(1000+t.revision, 0) })) // tried again
			t.enters(setCondition, func(cm *corev1.ConfigMap) {
				t.entries[len(t.entries)-1].Round = "2026-01-01T00:00:00Z"
				_ = ledger.Contents{Entries: t.entries}.Write(cm) // it is small
			})
		}, "is entered in the ledger twice"},
		"an action that is not in the ledger": {func(t *tale) {
			t.begins()
			t.fails()
			t.intends(0, setCondition)
			t.sets(corev1.ConditionTrue)
		}, "the ledger does not have it"},
		"an action that is tried again within the second": {func(t *tale) {
			t.begins()
			t.fails()
			t.intends(0, setCondition)
			t.enters(setCondition)
			t.node(records(func(r *marks.Record) { r.Remediations[0].Time = r.Remediations[0].Time.Add(time.Millisecond) }))
			t.sets(corev1.ConditionTrue)
			t.node(becomes(marks.RemediationStarted))
		}, "n is not verified"},
		"an action that is tried again later, and not entered": {func(t *tale) {
			t.begins()
			t.fails()
			t.intends(0, setCondition)
			t.enters(setCondition)
			t.passes(10 * time.Second)
			t.node(records(func(r *marks.Record) { r.Remediations[0].Time = r.Remediations[0].Time.Add(10 * time.Second) }))
			t.sets(corev1.ConditionTrue)
		}, "the ledger does not have it"},
		"an action that nothing intends": {func(t *tale) { t.begins(); t.makes() }, "and the record names"},
		"a condition that is set twice": {func(t *tale) {
			t.begins()
			t.fails()
			t.intends(0, setCondition)
			t.enters(setCondition)
			for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionTrue} {
				t.sets(status)
			}
		}, "(condition) is carried out twice"},
		"a condition that goes unasked": {func(t *tale) {
			t.begins()
			t.fails()
			t.condition()
			t.sets(corev1.ConditionFalse)
		}, "the condition is taken back, and the record does not ask for it"},
		"an object that is created twice": {func(t *tale) {
			t.begins()
			t.fails()
			t.condition()
			t.second()
			t.object()
			t.tell("configmaps/"+objectsIn+"/o", nil)
			t.makes()
		}, "object o is created twice"},
		"an object that goes unasked": {func(t *tale) {
			t.begins()
			t.fails()
			t.condition()
			t.second()
			t.object()
			t.tell("configmaps/"+objectsIn+"/o", nil)
		}, "object o is deleted, and the record does not ask for it"},
		"the second entry at first": {func(t *tale) {
			t.begins()
			t.fails()
			t.object()
		}, "entry 1 is tried, and the one before was not carried out"},
		"the second entry without another round": {func(t *tale) {
			t.begins()
			t.fails()
			t.condition()
			t.passes(20 * time.Second)
			t.object()
		}, "entry 1 is tried without a round of attempts"},
		"the second entry while the condition is there": {func(t *tale) {
			t.begins()
			t.fails()
			t.condition()
			t.passes(10 * time.Second)
			t.fails()
			t.object()
		}, "entry 1 is tried while the condition of another one is on the node"},
		"a node that is not left alone": {func(t *tale) {
			t.begins()
			t.fails()
			t.condition()
			t.fails()
		}, "it is verified again"},
		"a node that rebooted is verified at once": {func(t *tale) {
			t.begins()
			t.fails()
			t.condition()
			t.node(others(func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b2" }))
			t.fails()
			t.node(becomes(marks.RemediationReverting))
			t.sets(corev1.ConditionFalse)
			t.node(becomes(marks.RemediationEnded))
			t.object()
		}, "is not verified"},
		"a condition that stays after a pass": {func(t *tale) {
			t.begins()
			t.fails()
			t.condition()
			t.passes(10 * time.Second)
			t.recovers()
			t.node(records(func(r *marks.Record) { r.Remediations = nil }))
			t.sets(corev1.ConditionTrue)
		}, "its actions are not taken back: condition true"},
		"an object that stays after a pass": {func(t *tale) {
			t.begins()
			t.fails()
			t.condition()
			t.second()
			t.object()
			t.passes(10 * time.Second)
			t.recovers()
			t.node(records(func(r *marks.Record) { r.Remediations = nil }))
		}, "object o is left"},

		"a suspicion that a pass clears": {func(t *tale) {
			t.begins()
			t.node(broken(5))
			t.node(suspects(5))
			t.recovers()
		}, ""},
		"another transition": {func(t *tale) {
			t.begins()
			t.node(broken(5))
			t.node(suspects(5))
			t.recovers()
			t.node(broken(6))
			t.node(suspects(6))
			t.recovers()
		}, ""},
		"a cleared suspicion": {func(t *tale) {
			t.begins()
			t.node(broken(5))
			t.node(suspects(5))
			t.recovers()
			t.node(broken(5))
			t.node(suspects(5))
			t.recovers()
		}, "it is suspected again for chaos.example/Broken"},
		"a cleared suspicion after the cooldown": {func(t *tale) {
			t.begins()
			t.node(broken(5))
			t.node(suspects(5))
			t.recovers()
			t.passes(time.Minute)
			t.node(broken(5))
			t.node(suspects(5))
			t.recovers()
		}, ""},
		"a suspicion of nothing": {func(t *tale) { t.begins(); t.node(suspects(5)); t.recovers() }, "which it does not show"},
		"a suspicion of a node that never passed": {func(t *tale) {
			t.node(others(same))
			t.node(broken(5))
			t.node(suspects(5))
		}, "and it never passed"},
		"a suspicion of a node whose record somebody spoilt": {func(t *tale) {
			t.begins()
			t.node(others(func(n *corev1.Node) {
				n.Annotations[marks.AnnotationRecord], n.Annotations[annotationRecord] = "{", "1"
			}))
			t.node(broken(5))
			t.node(suspects(5))
			t.recovers()
		}, ""},
		"a suspicion that closes the gate": {func(t *tale) {
			t.begins()
			t.node(broken(5))
			t.node(suspects(5, closes))
			t.recovers()
		}, ""},
		"a suspicion that closes one gate too many": {func(t *tale) {
			t.neighbour(attempt.Failed)
			t.begins()
			t.node(broken(5))
			t.node(suspects(5, closes))
			t.recovers()
		}, "the gate is closed under a suspicion while 2 of 2"},
		"a suspicion that is confirmed without a probe": {func(t *tale) {
			t.begins()
			t.node(broken(5))
			t.node(suspects(5))
			t.fails(func(r *marks.Record) { r.Probed = false })
		}, "attempt 2 fails under a suspicion, and no probe passed beside it"},
		"a suspicion that stays": {func(t *tale) {
			t.begins()
			t.node(broken(5))
			t.node(suspects(5))
			t.node(says(corev1.ConditionTrue, "ChecksPassed", ""))
		}, "n is suspected still"},

		"a request": {func(t *tale) {
			t.begins()
			t.asks("1")
			t.worker(2, well)
			t.node(func(n *corev1.Node) {
				comes(attempt.Passed, 0)(n)
				answered(attempt.Passed)(n)
				says(corev1.ConditionTrue, "ChecksPassed", "")(n)
			})
			t.worker(2, well, ends)
		}, ""},
		"a request that nobody answers": {func(t *tale) {
			t.begins()
			t.node(says(corev1.ConditionTrue, "ChecksPassed", ""))
			t.node(others(func(n *corev1.Node) { n.Annotations[verifyRequested] = "1" }))
		}, "waits for the answer to request 1"},
		"a request that an earlier attempt answers": {func(t *tale) {
			t.begins()
			t.worker(2, well)
			t.asks("1")
			t.node(func(n *corev1.Node) { comes(attempt.Passed, 0)(n); answered(attempt.Passed)(n) })
		}, "request 1 is answered by an attempt from before it"},
		"a request that is answered without an attempt": {func(t *tale) {
			t.begins()
			t.asks("1")
			t.node(answered(attempt.Passed))
		}, "without such an attempt"},
		"a request that is answered wrongly": {func(t *tale) {
			t.begins()
			t.asks("1")
			t.worker(2, well)
			t.node(func(n *corev1.Node) { comes(attempt.Passed, 0)(n); answered(attempt.Failed)(n) })
		}, `answered by "failed" without such an attempt`},
		"a request that nobody made": {func(t *tale) {
			t.begins()
			t.node(answered(attempt.Passed))
		}, "nobody made it"},
		"two requests within a minute": {func(t *tale) {
			t.begins()
			t.asks("1")
			t.asks("2")
		}, "two requests are acted on within"},
		"two requests": {func(t *tale) {
			t.begins()
			t.asks("1")
			t.passes(time.Minute)
			t.asks("2")
		}, "n is not verified"},
	} {
		t.Run(name, func(t *testing.T) {
			story := &tale{c: newChecker(settings{maxRetries: 1, inFlight: 1, perHour: 5, maxUnhealthy: 50, timeout: time.Second,
				controlProbe: true, actions: []string{setCondition, makeObject, deleteOwner}, wait: 10 * time.Second,
				cooldown: time.Minute}), have: map[string]runtime.Object{}}
			tc.tell(story)
			faults := story.c.violations()
			for _, left := range story.c.unsettled(time.Now()) {
				if strings.HasPrefix(left, "n ") {
					faults = append(faults, left)
				}
			}
			all := strings.Join(faults, "\n")
			settles := strings.HasSuffix(tc.want, "is not verified") // and nothing is faulted
			switch {
			case tc.want == "" && len(faults) > 0, !strings.Contains(all, tc.want), settles && len(story.c.violations()) > 0:
				t.Errorf("%s, want %q", all, tc.want)
			}
		})
	}
}
