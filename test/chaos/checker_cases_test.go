package chaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// tale is a sequence of changes that is told to a checker.
type tale struct {
	c        *checker
	revision int64
	have     map[string]runtime.Object
	entries  []ledger.Entry // of the ledger
}

func (t *tale) tell(key string, after runtime.Object) {
	t.revision++
	t.c.see(change{revision: t.revision, key: key, before: t.have[key], after: after, at: time.Unix(1000+t.revision, 0)})
	if t.have[key] = after; after == nil {
		delete(t.have, key)
	}
}

// node changes the node, which is made where it is not there.
func (t *tale) node(change func(*corev1.Node)) {
	n, ok := t.have["minions/n"].(*corev1.Node)
	if n = n.DeepCopy(); !ok {
		n = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{}, Annotations: map[string]string{}},
			Spec: corev1.NodeSpec{ProviderID: "p", Taints: []corev1.Taint{{Key: gatingKey, Effect: corev1.TaintEffectNoSchedule}}}}
		n.Status.NodeInfo.BootID = "b"
	}
	change(n)
	t.tell("minions/n", n)
}

// others is a change by others than the controller.
func others(change func(*corev1.Node)) func(*corev1.Node) {
	return func(n *corev1.Node) { change(n); announce(n) }
}

// records writes the record as the controller does.
func records(change func(*marks.Record)) func(*corev1.Node) {
	return func(n *corev1.Node) {
		r := recordOf(n)
		r.NodeUID, r.BootID = "u", boot(n)
		change(&r)
		n.Annotations[marks.AnnotationRecord] = r.Encode()
	}
}

func comes(outcome attempt.Outcome, attempts int32) func(*corev1.Node) {
	return records(func(r *marks.Record) {
		r.Sequence, r.LastOutcome, r.Attempts = r.Sequence+1, outcome, attempts
		if outcome == attempt.Passed {
			r.VerifiedTime = &time.Time{}
		}
	})
}

func releases(n *corev1.Node) {
	comes(attempt.Passed, recordOf(n).Attempts)(n)
	n.Spec.Taints, n.Labels[verifiedLabel] = nil, "true"
}

// worker makes the worker of an attempt, and one that ended where what is given.
func (t *tale) worker(number int, what *ran, change ...func(*corev1.Pod)) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("w", number), UID: types.UID(fmt.Sprint("w", number)), OwnerReferences: []metav1.OwnerReference{{Kind: "Node", UID: "u"}},
		Labels: map[string]string{workerpod.LabelPurpose: workerpod.PurposeVerify}, Annotations: map[string]string{workerpod.AnnotationAttempt: fmt.Sprint(number)}}}
	key := "pods/" + namespace + "/" + p.Name
	if t.have[key] == nil {
		t.tell(key, p)
	}
	if what != nil {
		p = p.DeepCopy()
		p.Status.Phase = corev1.PodSucceeded
		b, _ := json.Marshal(what) // strings only
		p.Status.Message = string(b)
	}
	for _, f := range change {
		f(p)
	}
	if what != nil || len(change) > 0 {
		t.tell(key, p)
	}
}

// again makes a first attempt, which is inconclusive, changes the node, and begins a second one, at the given time after
// the first.
func (t *tale) again(after time.Duration, change func(*corev1.Node)) {
	t.node(others(same))
	t.worker(1, well)
	t.node(records(func(r *marks.Record) {
		last := time.Unix(1000+t.revision+3, 0).Add(-after) // the second one's revision is the third from here
		r.Sequence, r.LastOutcome, r.BootID, r.LastTime = 1, attempt.Inconclusive, "b", &last
	}))
	t.node(others(change))
	t.worker(2, nil)
}

func ends(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

func (t *tale) claim(change func(*karpv1.NodeClaim)) {
	c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "cu"}, Status: karpv1.NodeClaimStatus{ProviderID: "p", NodeName: "n"}}
	change(c)
	t.tell("karpenter.sh/nodeclaims/c", c)
}

func (t *tale) enter(change func(*corev1.ConfigMap)) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ledger.Name, Annotations: map[string]string{}}}
	t.entries = append(t.entries, ledger.Entry{UID: "u", Node: "n", Kind: "NodeClaim", Time: metav1.NewTime(time.Unix(1, 0))})
	_ = ledger.Contents{Entries: t.entries}.Write(cm) // it is small
	change(cm)
	t.tell("configmaps/"+namespace+"/"+ledger.Name, cm)
}

var (
	well = &ran{Node: "u", Boot: "b", Checks: "checks-a"}
	ill  = &ran{Node: "u", Boot: "b", Checks: "checks-a", Exit: 1}
)

func same[T any](T) {}

func gateReturns(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: gatingKey, Effect: corev1.TaintEffectNoSchedule}}
}

func underGate(p *corev1.Pod) { p.Annotations[workerpod.AnnotationGated] = "true" }

// showsOnly says of the revisions that a watch showed these alone, each as it came.
func (t *tale) showsOnly(shown ...int64) func(string, types.UID, int64, int64, time.Time, time.Time) bool {
	return func(_ string, node types.UID, from, before int64, since, until time.Time) bool {
		return slices.ContainsFunc(shown, func(revision int64) bool {
			at := time.Unix(1000+revision, 0)
			return node == "u" && revision >= from && revision < before && !at.Before(since) && (until.IsZero() || at.Before(until))
		})
	}
}

// toItsDeletion is the way of a node whose checks fail, with what is done at each turn.
func toItsDeletion(t *tale, node func(*corev1.Node), enters func(*corev1.ConfigMap)) {
	t.node(others(same))
	t.claim(same)
	for n := range 2 {
		t.worker(n+1, ill)
		t.node(comes(attempt.Failed, int32(n+1)))
		t.worker(n+1, ill, ends)
	}
	t.node(records(func(r *marks.Record) { r.Probed = true }))
	t.node(others(node))
	t.node(records(func(r *marks.Record) { r.Deletion = &marks.Deletion{Kind: "NodeClaim", Name: "c", UID: "cu"} }))
	t.enter(enters)
	t.claim(func(c *karpv1.NodeClaim) { c.DeletionTimestamp = &metav1.Time{} })
}

// Each invariant faults what breaks it, and nothing else.
func TestChecker(t *testing.T) {
	for name, tc := range map[string]struct {
		tell func(*tale)
		want string // part of the one fault; empty for none
	}{
		"a pass releases": {func(t *tale) {
			t.node(others(same))
			t.worker(1, well)
			t.node(releases)
			t.worker(1, well, ends)
		}, ""},
		"released without a worker": {func(t *tale) { t.node(others(same)); t.node(releases) }, "attempt 1 is recorded as passed, and no worker of it passed"},
		"released by a worker of before the reboot": {func(t *tale) {
			t.node(others(same))
			t.worker(1, well)
			t.node(others(func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b2" }))
			t.node(releases)
		}, "released without a pass of node u, boot b2"},
		"released by other checks": {func(t *tale) {
			t.node(others(same))
			t.worker(1, well)
			t.node(others(func(n *corev1.Node) { n.Labels[labelProfile] = "b" }))
			t.node(releases)
		}, "boot b and checks-b"},
		"released by a pass of before the gate came back": {func(t *tale) {
			t.node(others(func(n *corev1.Node) { n.Spec.Taints = nil }))
			t.worker(1, well)
			t.node(others(func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: gatingKey, Effect: corev1.TaintEffectNoSchedule}}
			}))
			t.node(releases)
		}, "released without a pass"},
		"released by a pass of before the gate went and came back": {func(t *tale) {
			t.node(others(same))
			t.worker(1, well, underGate)
			t.node(others(replaces))
			t.node(others(gateReturns))
			t.node(releases)
		}, "released without a pass"},
		"released by a pass of before the gate went and came back, and no watch showed it": {func(t *tale) {
			t.node(others(same))
			t.worker(1, well, underGate)
			t.node(others(replaces))
			t.c.showed = t.showsOnly() // from here on
			t.node(others(gateReturns))
			t.node(releases)
		}, ""},
		"released by a pass of before the gate went and came back, and a watch showed that in time": {func(t *tale) {
			t.node(others(same))
			t.worker(1, well, underGate)
			t.node(others(replaces))
			t.c.showed = t.showsOnly(t.revision)
			t.node(others(gateReturns))
			t.node(others(same))
			t.node(releases)
		}, "released without a pass"},
		"released by a pass of a worker that was made without a gate, and no watch showed that": {func(t *tale) {
			t.node(others(func(n *corev1.Node) { n.Spec.Taints = nil }))
			t.worker(1, well)
			t.c.showed = t.showsOnly()
			t.node(others(gateReturns))
			t.node(releases)
		}, "released without a pass"},
		"released by a pass of after the gate came back": {func(t *tale) {
			t.node(others(func(n *corev1.Node) { n.Spec.Taints = nil }))
			t.node(others(gateReturns))
			t.worker(1, well, underGate)
			t.node(releases)
		}, ""},
		"two workers at once": {func(t *tale) {
			t.node(others(same))
			t.worker(1, nil)
			t.worker(2, nil)
		}, "it occupies the node beside w1"},
		"a worker beside one that never started and whose end is confirmed": {func(t *tale) {
			t.node(others(same))
			t.worker(1, nil)
			t.node(comes(attempt.Inconclusive, 0))
			t.worker(1, nil, ends, func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = new(int64) })
			t.worker(2, nil)
		}, ""},
		"an attempt begins as soon as one was inconclusive":      {func(t *tale) { t.again(500*time.Millisecond, same) }, "attempt 2 begins 500ms after one that did not pass"},
		"an attempt begins some time after one was inconclusive": {func(t *tale) { t.again(leastBackoff, same) }, ""},
		"an attempt begins as soon as one was inconclusive, after a reboot": {func(t *tale) {
			t.again(500*time.Millisecond, func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b2" })
		}, ""},
		"an attempt is lost": {func(t *tale) {
			t.node(others(same))
			t.worker(1, well)
			t.worker(1, well, ends)
		}, "the worker of attempt 1 is deleted, and 0 is recorded"},
		"a worker of a node whose record was spoilt": {func(t *tale) {
			t.node(others(same))
			t.worker(1, well)
			t.node(releases)
			t.node(others(func(n *corev1.Node) {
				n.Annotations[marks.AnnotationRecord], n.Annotations[annotationRecord] = "{", "1"
			}))
			t.worker(2, nil)
			t.worker(2, nil, ends)
		}, ""},
		"a worker that was made while its node was opted out": {func(t *tale) {
			t.node(others(func(n *corev1.Node) { n.Annotations["node-ready/skip"] = "true" }))
			t.worker(1, nil)
			t.worker(1, nil, ends)
		}, ""},
		"an attempt is left out": {func(t *tale) {
			t.node(others(same))
			t.node(records(func(r *marks.Record) { r.Sequence = 2 }))
		}, "the record goes from attempt 0 to 2"},
		"an attempt is skipped": {func(t *tale) {
			t.node(others(same))
			t.worker(2, nil)
		}, "attempt 2 begins, and 0 is recorded"},
		"a worker that was decided on a record which somebody took away": {func(t *tale) {
			t.node(others(same))
			t.worker(1, ill)
			t.node(comes(attempt.Failed, 1))
			t.worker(1, ill, ends)
			t.node(others(func(n *corev1.Node) {
				delete(n.Annotations, marks.AnnotationRecord)
				n.Annotations[annotationRecord] = "1"
			}))
			t.worker(2, ill)
			t.worker(2, ill, ends)
		}, ""},
		"an attempt begins that is recorded": {func(t *tale) {
			t.node(others(same))
			t.node(comes(attempt.Inconclusive, 0))
			t.worker(1, nil)
		}, "attempt 1 begins, and 1 is recorded"},
		"a failure is invented": {func(t *tale) {
			t.node(others(same))
			t.worker(1, well)
			t.node(comes(attempt.Failed, 1))
		}, "no worker of it failed"},
		"a first failure closes a node that worked": {func(t *tale) {
			t.node(others(same))
			t.worker(1, well)
			t.node(releases)
			t.worker(2, ill)
			t.node(func(n *corev1.Node) {
				comes(attempt.Failed, 1)(n)
				n.Spec.Taints = []corev1.Taint{{Key: "node-ready/unverified", Effect: corev1.TaintEffectNoSchedule}}
			})
		}, "the gate is closed by attempt 2"},
		"a failure counts twice": {func(t *tale) {
			t.node(others(same))
			t.worker(1, ill)
			t.node(comes(attempt.Failed, 2))
		}, "2 failures are counted, of 1"},
		"a failure counts for nothing": {func(t *tale) {
			t.node(others(same))
			t.worker(1, ill)
			t.node(comes(attempt.Failed, 1))
			t.worker(2, ill)
			t.node(comes(attempt.Inconclusive, 0))
		}, "0 failures are counted, of 1"},
		"a worker of other checks begins a run": {func(t *tale) {
			t.c.ran["hash"] = "checks-a"
			of := records(func(r *marks.Record) { r.Checks = "hash" })
			t.node(others(same))
			t.worker(1, ill)
			t.node(func(n *corev1.Node) { comes(attempt.Failed, 1)(n); of(n) })
			t.node(others(func(n *corev1.Node) { n.Labels[labelProfile] = "b" }))
			t.worker(2, ill)
			t.node(func(n *corev1.Node) { comes(attempt.Inconclusive, 0)(n); of(n) })
		}, ""},
		"a foreign taint is dropped": {func(t *tale) {
			t.node(others(func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: gatingKey, Effect: corev1.TaintEffectPreferNoSchedule})
			}))
			t.worker(1, well)
			t.node(releases)
		}, "foreign marks were touched"},
		"deleted as it may be": {func(t *tale) { toItsDeletion(t, same, same) }, ""},
		"deleted after it opted out": {func(t *tale) {
			toItsDeletion(t, func(n *corev1.Node) { n.Annotations["node-ready/do-not-delete"] = "true" }, same)
		}, "although node-ready/do-not-delete was accepted"},
		"deleted while paused": {func(t *tale) {
			toItsDeletion(t, same, func(cm *corev1.ConfigMap) { cm.Annotations[ledger.AnnotationPaused] = "true" })
		}, "while remediation is paused"},
		"deleted beside too many that failed": {func(t *tale) {
			t.tell("minions/m", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m", Annotations: map[string]string{
				marks.AnnotationRecord: marks.Record{NodeUID: "m", Sequence: 1, LastOutcome: attempt.Failed, Attempts: 1}.Encode()}}})
			toItsDeletion(t, same, same)
		}, "2 of 2 nodes failed or were deleted, the limit is 1"},
		"deleted beside one that is well": {func(t *tale) {
			t.tell("minions/m", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m"}})
			toItsDeletion(t, same, same)
		}, ""},
		"deleted without the ledger": {func(t *tale) {
			toItsDeletion(t, same, func(cm *corev1.ConfigMap) { cm.Data[ledger.KeyDeletions] = "[]" })
		}, "the ledger does not have it"},
		"the Node is deleted, not its NodeClaim": {func(t *tale) {
			toItsDeletion(t, same, same)
			t.node(records(func(r *marks.Record) { r.Deletion = &marks.Deletion{Kind: "Node", Name: "n", UID: "u"} }))
			t.tell("minions/n", nil)
		}, "while NodeClaim c lives"},
		"a rule's taint without an owner": {func(t *tale) {
			t.node(others(same))
			t.node(func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: rulePrefix + ruleName, Effect: corev1.TaintEffectNoSchedule})
			})
		}, "is put on, and map[] owns it"},
	} {
		story := &tale{c: newChecker(settings{maxRetries: 2, inFlight: 1, perHour: 5, maxUnhealthy: 50, timeout: time.Second, neverVerifiedOnly: true, controlProbe: true, action: deleteOwner}), have: map[string]runtime.Object{}}
		tc.tell(story)
		faults := story.c.violations()
		switch {
		case tc.want == "" && len(faults) > 0:
			t.Errorf("%s: %s", name, faults)
		case tc.want != "" && (len(faults) == 0 || !strings.Contains(strings.Join(faults, "\n"), tc.want)):
			t.Errorf("%s: %q, want %q", name, faults, tc.want)
		}
	}
}

// A worker is under way from its creation until it ends or its end is asked for.
func TestUnderWay(t *testing.T) {
	story := &tale{c: newChecker(settings{maxRetries: 2}), have: map[string]runtime.Object{}}
	story.node(others(func(n *corev1.Node) { n.Name = "node-1" }))
	wants := func(when string, want int) {
		t.Helper()
		if some := story.c.underWay(); len(some) != want || want > 0 && some[0] != 1 {
			t.Errorf("%s: %v, want %d", when, some, want)
		}
	}
	wants("before its worker", 0)
	story.worker(1, nil)
	wants("with a worker", 1)
	story.worker(1, ill)
	wants("with one that ended", 0)
	story.node(comes(attempt.Failed, 1))
	story.worker(2, nil)
	wants("with the next", 1)
	story.worker(2, nil, ends)
	wants("with one that is to go", 0)
}
