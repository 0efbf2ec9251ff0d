package chaos

import (
	"slices"
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

// fails has the node's next attempt fail, and a probe pass beside it; of a node in service the next two, which closes it.
func (t *tale) fails(change ...func(*marks.Record)) {
	if n := t.have["minions/n"].(*corev1.Node); recordOf(n).MayHaveVerified() && !gated(n) {
		t.failsOnce(same, change...)
	}
	t.failsOnce(closes, change...)
}

// failsOnce is one failed attempt, and what else its result changes on the node.
func (t *tale) failsOnce(also func(*corev1.Node), change ...func(*marks.Record)) {
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
		also(n)
	})
	t.worker(next, fails, ends)
}

// recovers has the node's next attempt pass.
func (t *tale) recovers() {
	next := int(recordOf(t.have["minions/n"].(*corev1.Node)).Sequence) + 1
	t.worker(next, well)
	t.node(func(n *corev1.Node) {
		releases(n)
		says(corev1.ConditionTrue, "ChecksPassed", "")(n)
		records(func(r *marks.Record) { r.Suspicion = nil })(n)
	})
	t.worker(next, well, ends)
}

// interferes writes the condition of our type in another program's name.
func (t *tale) interferes() {
	t.node(others(func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: required, Status: corev1.ConditionFalse, Reason: "Chaos"})
	}))
}

// enters enters the condition in the ledger, beside what change adds.
func (t *tale) enters(change ...func(*corev1.ConfigMap)) {
	t.enter(func(cm *corev1.ConfigMap) {
		t.entries[len(t.entries)-1] = ledger.Entry{UID: "u", Node: "n", Kind: kindCondition, Time: metav1.NewTime(time.Unix(1000+t.revision, 0))}
		_ = ledger.Contents{Entries: t.entries}.Write(cm) // it is small
		for _, f := range change {
			f(cm)
		}
	})
}

func pausedLedger(cm *corev1.ConfigMap) { cm.Annotations[ledger.AnnotationPaused] = "true" }

// sets sets a condition of ours, or removes it.
func (t *tale) sets(is bool, change ...func(*corev1.NodeCondition)) {
	t.node(func(n *corev1.Node) {
		n.Status.Conditions = slices.DeleteFunc(slices.Clone(n.Status.Conditions), func(c corev1.NodeCondition) bool { return c.Reason == ours })
		if is {
			has := corev1.NodeCondition{Type: required, Status: corev1.ConditionTrue, Reason: ours}
			for _, f := range change {
				f(&has)
			}
			n.Status.Conditions = append(n.Status.Conditions, has)
		}
	})
}

// condition has the controller set the condition.
func (t *tale) condition() {
	t.enters()
	t.sets(true)
}

// stays has the condition stay on the node although it should have gone, for so long.
func (t *tale) stays(d time.Duration) {
	t.c.led = time.Unix(1000, 0)
	t.passes(d)
	t.c.overstays(time.Unix(1000+t.revision, 0), true)
}

// annotates has somebody annotate the node.
func (t *tale) annotates(key string) {
	t.node(others(func(n *corev1.Node) { n.Annotations[key] = "true" }))
}

// amends has the controllers start with other settings.
func (t *tale) amends(amend func(*settings)) {
	other := t.c.settings
	amend(&other)
	t.c.configure(other, time.Unix(1000+t.revision, 0))
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
func (t *tale) neighbour(outcome attempt.Outcome, change ...func(*marks.Record)) {
	r := marks.Record{NodeUID: "m", Sequence: 1, LastOutcome: outcome, Attempts: 1}
	for _, f := range change {
		f(&r)
	}
	t.tell("minions/m", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m", Annotations: map[string]string{marks.AnnotationRecord: r.Encode()}}})
}

// Each rule about suspicions, requests and conditions faults what breaks it, and nothing else.
func TestCheckerOfRepairs(t *testing.T) {
	fails := func(t *tale) { t.begins(); t.fails() }
	carries := func(t *tale) { fails(t); t.condition() }
	for name, tc := range map[string]struct {
		tell func(*tale)
		want string // part of a fault; empty for none
	}{
		"a condition":              {func(t *tale) { carries(t); t.stays(time.Minute) }, "n is not verified"},
		"a condition, then a pass": {func(t *tale) { carries(t); t.recovers(); t.sets(false) }, ""},
		"a condition that is set again": {func(t *tale) {
			carries(t)
			t.annotates("node-ready/do-not-delete")
			t.sets(false)
			t.node(others(func(n *corev1.Node) { delete(n.Annotations, "node-ready/do-not-delete") }))
			t.sets(true)
		}, "n is not verified"},
		"a second failure": {func(t *tale) {
			carries(t)
			t.recovers()
			t.sets(false)
			t.fails()
			t.condition()
		}, "n is not verified"},
		"a condition that is not in the ledger": {func(t *tale) { fails(t); t.sets(true) }, "the ledger does not have it"},
		"a condition that an earlier entry is for": {func(t *tale) {
			carries(t)
			t.recovers()
			t.sets(false)
			t.fails()
			t.sets(true)
		}, "the ledger does not have it"},
		"a condition that is entered twice": {func(t *tale) { carries(t); t.enters() }, "is entered in the ledger twice"},
		"a condition on a node that passed": {func(t *tale) { t.begins(); t.condition() }, `is set, and the record has 0 failures`},
		"a condition after an opt-out": {func(t *tale) {
			fails(t)
			t.annotates("node-ready/do-not-delete")
			t.condition()
		}, "is set, and the node has node-ready/do-not-delete"},
		"a condition after an inconclusive attempt": {func(t *tale) {
			fails(t)
			t.node(comes(attempt.Inconclusive, 1))
			t.condition()
		}, "is set after"},
		"a condition without a probe": {func(t *tale) {
			t.begins()
			t.fails(func(r *marks.Record) { r.Probed = false })
			t.condition()
		}, "no probe passed beside the last failure"},
		"an entry while paused":                   {func(t *tale) { fails(t); t.enters(pausedLedger) }, "while remediation is paused"},
		"a condition beside too many that failed": {func(t *tale) { t.neighbour(attempt.Failed); carries(t) }, "a condition is set while 2 of 2 nodes failed"},
		"a condition beside one that failed other checks": {func(t *tale) {
			t.c.ran["other"] = "checks-b"
			t.neighbour(attempt.Failed, func(r *marks.Record) { r.Checks = "other" })
			carries(t)
		}, "n is not verified"},
		"a condition beside another that is in flight": {func(t *tale) {
			t.neighbour(attempt.Passed)
			fails(t)
			t.c.ledger["m"] = metav1.NewTime(time.Unix(1, 0))
			t.enters()
		}, "1 other nodes of the pool are still being deleted"},
		"a condition beside another whose node passed": {func(t *tale) {
			t.neighbour(attempt.Passed)
			fails(t)
			t.c.ever["m"].passedAt = time.Unix(2, 0)
			t.c.ledger["m"] = metav1.NewTime(time.Unix(1, 0))
			t.condition()
		}, "n is not verified"},
		"a condition too many in an hour": {func(t *tale) {
			t.c.settings.perHour = 1
			fails(t)
			t.entries = []ledger.Entry{{UID: "m", Node: "m", Kind: kindCondition, Time: metav1.NewTime(time.Unix(1, 0))}}
			t.condition()
		}, "an action is entered beside 1 on other nodes in an hour, the limit is 1"},
		"many of one node in an hour": {func(t *tale) {
			t.c.settings.perHour = 1
			carries(t)
			t.recovers()
			t.sets(false)
			t.fails()
			t.condition()
		}, "n is not verified"},
		"an entry that is lost": {func(t *tale) {
			carries(t)
			t.entries = nil
			t.enter(func(cm *corev1.ConfigMap) { cm.Data[ledger.KeyDeletions] = "[]" })
		}, "the ledger has lost the entry of an action"},

		"a condition stays after a pass": {func(t *tale) { carries(t); t.recovers(); t.stays(goesWithin) }, "failures, the last outcome"},
		"it goes a moment later": {func(t *tale) {
			carries(t)
			t.recovers()
			t.stays(goesWithin - 2*time.Second)
			t.sets(false)
			t.stays(time.Minute)
		}, ""},
		"nobody leads": {func(t *tale) {
			carries(t)
			t.annotates("node-ready/do-not-delete")
			t.passes(time.Minute)
			t.c.overstays(time.Unix(1000+t.revision, 0), true)
		}, "n is not verified"},
		"a leader is elected late": {func(t *tale) {
			carries(t)
			t.annotates("node-ready/do-not-delete")
			t.passes(time.Minute)
			t.c.led = time.Unix(1000+t.revision, 0)
			t.c.overstays(time.Unix(1000+t.revision, 0), true)
		}, "n is not verified"},
		"its removal is refused": {func(t *tale) {
			carries(t)
			t.c.refused = time.Unix(1, 0)
			t.annotates("node-ready/do-not-delete")
			t.stays(time.Minute)
		}, "n is not verified"},
		"it stays on a node that is skipped": {func(t *tale) {
			carries(t)
			t.annotates("node-ready/skip")
			t.stays(goesWithin)
		}, "and the node has node-ready/skip"},
		"it stays on a node that is opted out": {func(t *tale) {
			carries(t)
			t.annotates("node-ready/do-not-delete")
			t.stays(goesWithin)
		}, "and the node has node-ready/do-not-delete"},
		"it stays while paused": {func(t *tale) {
			carries(t)
			t.entries = t.entries[:0]
			t.enters(func(cm *corev1.ConfigMap) { cm.Data[ledger.KeyDeletions] = "[]" }, pausedLedger)
			t.stays(goesWithin)
		}, "and remediation is paused"},
		"it stays after the record was removed": {func(t *tale) {
			carries(t)
			t.node(others(func(n *corev1.Node) {
				delete(n.Annotations, marks.AnnotationRecord)
				n.Annotations[annotationRecord] = "1"
			}))
			t.stays(goesWithin)
		}, `has 0 failures, the last outcome ""`},
		"it stays after the record was forged": {func(t *tale) {
			carries(t)
			t.node(others(func(n *corev1.Node) {
				records(func(r *marks.Record) { r.Attempts = -1 })(n)
				n.Annotations[annotationRecord] = "1"
			}))
			t.stays(goesWithin)
		}, `has 0 failures, the last outcome ""`},
		"it stays after a reboot": {func(t *tale) {
			carries(t)
			t.node(others(func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b2" }))
			t.stays(goesWithin)
		}, "the node rebooted since"},
		"it stays with other checks": {func(t *tale) {
			t.c.ran["hash"] = "checks-a"
			t.begins()
			t.fails(func(r *marks.Record) { r.Checks = "hash" })
			t.condition()
			t.amends(func(s *settings) { s.corrected = true })
			t.stays(goesWithin)
		}, "the failures are of checks-a, and its checks are checks-c"},
		"it stays in a dry run": {func(t *tale) {
			carries(t)
			t.amends(func(s *settings) { s.dryRun = true })
			t.stays(goesWithin)
		}, "dry run true"},
		"it stays with remediation off": {func(t *tale) {
			carries(t)
			t.amends(func(s *settings) { s.off = true })
			t.stays(goesWithin)
		}, "off true"},
		"it stays with another action": {func(t *tale) {
			carries(t)
			t.amends(func(s *settings) { s.action = deleteOwner })
			t.stays(goesWithin)
		}, "has action delete"},
		"it stays with another type": {func(t *tale) {
			carries(t)
			t.amends(func(s *settings) { s.condition = otherType })
			t.stays(goesWithin)
		}, "type chaos.example/Repair"},
		"it stays on a node that is left out": {func(t *tale) {
			carries(t)
			t.node(others(func(n *corev1.Node) { n.Labels[labelPool] = "pool" }))
			t.amends(func(s *settings) { s.leavesOut = true })
			t.stays(goesWithin)
		}, "the selector leaves the node out"},
		"it stays where somebody forged it": {func(t *tale) {
			t.begins()
			t.sets(true, func(c *corev1.NodeCondition) { c.Message = forgedMessage })
			t.stays(goesWithin)
		}, "has 0 failures"},
		"it stays once all else is settled": {func(t *tale) { carries(t); t.recovers() }, "n has a condition still"},

		"a condition that another program wrote": {func(t *tale) {
			t.begins()
			t.interferes()
			t.fails()
			t.node(records(func(r *marks.Record) { r.Held = guardCondition }))
		}, "n is not verified"},
		"a condition that another program wrote is overwritten": {func(t *tale) {
			t.begins()
			t.interferes()
			t.fails()
			t.node(reports(required, corev1.ConditionTrue, 1))
		}, "the condition that another program wrote is changed"},
		"an action is held for another program's condition, and there is none": {func(t *tale) {
			fails(t)
			t.node(records(func(r *marks.Record) { r.Held = guardCondition }))
		}, "and there is none"},
		"a deletion with action condition": {func(t *tale) {
			t.node(others(same))
			t.claim(same)
			t.fails()
			t.node(records(func(r *marks.Record) { r.Deletion = &marks.Deletion{Kind: "NodeClaim", Name: "c", UID: "cu"} }))
			t.enter(same)
			t.claim(func(c *karpv1.NodeClaim) { c.DeletionTimestamp = &metav1.Time{} })
		}, "is deleted, although the configuration has action condition"},

		"a suspicion that a pass clears": {func(t *tale) {
			t.begins()
			t.node(broken(5))
			t.node(suspects(5))
			t.recovers()
		}, ""},
		"another transition within a minute": {func(t *tale) {
			t.begins()
			t.node(broken(5))
			t.node(suspects(5))
			t.recovers()
			t.node(broken(6))
			t.node(suspects(6))
			t.recovers()
		}, "it is suspected again for chaos.example/Broken"},
		"another transition that closes the gate within the cooldown": {func(t *tale) {
			t.begins()
			t.node(broken(5))
			t.node(suspects(5))
			t.recovers()
			t.passes(2 * time.Minute)
			t.node(broken(6))
			t.node(suspects(6, closes))
			t.recovers()
		}, "the gate is closed for chaos.example/Broken, which a pass cleared"},
		"another transition after a minute": {func(t *tale) {
			t.begins()
			t.node(broken(5))
			t.node(suspects(5))
			t.recovers()
			t.passes(time.Minute)
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
			t.passes(time.Hour)
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
				controlProbe: true, action: setCondition, condition: required, clear: true, cooldown: time.Hour}), have: map[string]runtime.Object{}}
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
