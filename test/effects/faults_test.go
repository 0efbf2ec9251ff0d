package effects

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// path is a way through the reconcilers that is disturbed at each of its writes in turn.
type path struct {
	settings string
	// begin makes the nodes and returns the one that counts.
	begin func(*world) *corev1.Node
	// writes is what the undisturbed run writes; nil where the order of two nodes' writes is of no account.
	writes []string
	// rounds: it does not settle, and is looked at so often, five minutes apart.
	rounds int
	// then is what happens once it has settled, one after the other.
	then []func(w *world, node string)
	// want is what the node comes to, undisturbed; its events by reason.
	want   result
	events map[decide.Reason]int
}

// run drives a leader to where the path ends.
func (p path) run(l *leader, n *corev1.Node) {
	l.w.Helper()
	l.drive()
	for ; l.w.done < len(p.then) && !l.isDead(); l.drive() {
		p.then[l.w.done](l.w, n.Name)
		l.w.done++
	}
	for range p.rounds {
		if have, _ := l.w.get(n.Name); have == nil || l.isDead() {
			return
		}
		l.w.clock.advance(5 * time.Minute)
		l.drive()
	}
}

const deletes = `"deleteFailedNodes": true`

func (w *world) record(node string) marks.Record {
	_, f := w.get(node)
	return f.Record
}

// failsUntil plays a node whose checks fail until its record is as wanted.
func failsUntil(w *world, done func(marks.Record) bool) func(*corev1.Pod) int {
	return func(p *corev1.Pod) int {
		if p.Labels[workerpod.LabelPurpose] == workerpod.PurposeProbe || done(w.record(p.Annotations[workerpod.AnnotationNode])) {
			return 0
		}
		return 1
	}
}

func paths() map[string]path {
	passed := result{Labelled: true, Record: "passed  held= verified=true", Sequence: 1, Condition: "True ChecksPassed"}
	held := func(guard string) result {
		return result{Gated: true, Record: "failed ChecksFailed held=" + guard + " verified=false", Sequence: 2, Attempts: 2, Condition: "Unknown RemediationHeld"}
	}
	again := func(r result, change func(*result)) result { change(&r); return r }
	hold := []string{"patch Node", "patch Node/status"}
	late := append([]string{"patch Node/status"}, hold...) // the node says that its retries are exhausted before the guard is asked
	return map[string]path{
		"pass": {begin: func(w *world) *corev1.Node { return w.node("n") },
			writes: []string{"create Pod", "patch Node", "patch Node/status", "delete Pod"},
			want:   passed, events: map[decide.Reason]int{decide.EventPassed: 1}},

		"exhaust": {begin: func(w *world) *corev1.Node {
			w.exit = func(*corev1.Pod) int { return 1 }
			return w.node("n")
		},
			writes: []string{"create Pod", "patch Node", "patch Node/status", "patch Pod", "create Pod", "patch Node", "patch Node/status", "patch Pod", "delete Pod", "delete Pod"},
			want:   result{Gated: true, Record: "failed ChecksFailed held= verified=false", Sequence: 2, Attempts: 2, Condition: "False RetriesExhausted"},
			events: map[decide.Reason]int{decide.EventFailed: 2, decide.EventExhausted: 1}},

		"attribute, probe passes": {settings: `{"nodeManagement": {` + deletes + `}}`, begin: func(w *world) *corev1.Node {
			w.exit = failsUntil(w, func(r marks.Record) bool { return r.Attempts > 0 })
			w.verified("control")
			return w.node("n")
		},
			want:   again(passed, func(r *result) { r.Sequence, r.Attempts = 2, 1 }),
			events: map[decide.Reason]int{decide.EventFailed: 1, decide.EventPassed: 1}},

		"attribute, probe fails": {settings: `{"nodeManagement": {` + deletes + `}}`, begin: func(w *world) *corev1.Node {
			w.exit = func(p *corev1.Pod) int {
				if n := p.Annotations[workerpod.AnnotationNode]; strings.HasSuffix(n, "-n") && w.record(n).Inconclusive > 0 {
					return 0
				}
				return 1
			}
			w.verified("control")
			return w.node("n")
		},
			want:   again(passed, func(r *result) { r.Sequence, r.Inconclusive = 2, 1 }),
			events: map[decide.Reason]int{decide.EventHeld: 1, decide.EventPassed: 1, decide.EventFailed: 0}},

		"hold by doNotDelete": {settings: `{"nodeManagement": {` + deletes + `}}`, writes: hold,
			begin: func(w *world) *corev1.Node {
				return w.exhausted("n", func(n *corev1.Node) { n.Annotations = map[string]string{marks.AnnotationDoNotDelete: "true"} })
			},
			want: held(decide.GuardDoNotDelete), events: map[decide.Reason]int{decide.EventHeld: 1}},

		"hold by neverVerifiedOnly": {settings: `{"nodeManagement": {` + deletes + `}}`, writes: hold,
			begin: func(w *world) *corev1.Node {
				n := w.node("n", untainted)
				r := w.failures(2)
				r.VerifiedTime = r.LastTime
				w.write(n, r)
				return n
			},
			want:   again(held(decide.GuardNeverVerifiedOnly), func(r *result) { r.Record = strings.Replace(r.Record, "verified=false", "verified=true", 1) }),
			events: map[decide.Reason]int{decide.EventQuarantined: 1}},

		"hold by sparePods": {settings: `{"nodeManagement": {` + deletes + `}}`, writes: late,
			begin: func(w *world) *corev1.Node {
				n := w.exhausted("n")
				w.ordinaryPod(n)
				return n
			},
			want: held(decide.GuardSparePods), events: map[decide.Reason]int{decide.EventHeld: 1}},

		"hold by maxDeletionsPerHour": {settings: `{"nodeManagement": {` + deletes + `, "remediation": {"maxDeletionsPerHour": 1}}}`, writes: late,
			begin: func(w *world) *corev1.Node {
				w.fill(1)
				return w.exhausted("n")
			},
			want: again(held(decide.GuardMaxDeletionsPerHour), func(r *result) { r.Ledger = 1 }), events: map[decide.Reason]int{decide.EventHeld: 1}},

		"hold by a ledger that was emptied": {settings: `{"nodeManagement": {` + deletes + `}}`, writes: append([]string{"patch Node/status", "update ConfigMap"}, hold...),
			begin: func(w *world) *corev1.Node {
				w.fill(1)
				w.emptyLedger()
				return w.exhausted("n")
			},
			want: held(decide.GuardMaxDeletionsPerHour), events: map[decide.Reason]int{decide.EventHeld: 1}},

		"hold by nodeClaim": {settings: `{"nodeManagement": {` + deletes + `}}`, writes: late,
			begin: func(w *world) *corev1.Node { return w.exhausted("n", pooled) },
			want:  held(owner.Guard), events: map[decide.Reason]int{decide.EventHeld: 1}},

		"delete a NodeClaim": {settings: `{"reconciliation": {"maxRetries": 1}, "nodeManagement": {` + deletes + `, "remediation": {"controlProbe": false}}}`,
			begin: func(w *world) *corev1.Node {
				w.exit = func(*corev1.Pod) int { return 1 }
				n := w.node("n", pooled)
				w.claim(n)
				w.claim(w.node("other", pooled, func(n *corev1.Node) { n.Annotations = map[string]string{marks.AnnotationSkip: "true"} }))
				return n
			},
			writes: []string{"create Pod", "patch Node", "patch Node/status", "patch Pod", "patch Node", "update ConfigMap", "delete Pod", "delete NodeClaim", "patch Node/status"},
			want: result{Gated: true, Record: "failed ChecksFailed held= verified=false", Sequence: 1, Attempts: 1, Condition: "False RetriesExhausted",
				Deletion: "NodeClaim/claim", Ledger: 1, Deleted: 1},
			events: map[decide.Reason]int{decide.EventFailed: 1, decide.EventExhausted: 1, decide.EventDeleted("NodeClaim"): 1}},

		"delete a Node past its deadline, whose kubelet rejects": {settings: overdue, rounds: 8,
			begin: func(w *world) *corev1.Node {
				w.exit = rejectsVerify
				w.verified("control")
				return w.node("n")
			},
			writes: []string{
				"create Pod", "patch Node", "patch Pod", "patch Node/status", // the first attempt
				"delete Pod", "patch Node/status", // the deadline
				"create Pod", "create Pod", "patch Node", "patch Pod", // another attempt, and the probe that it is compared with
				"patch Node", "update ConfigMap", "delete Pod", "delete Node", "delete Pod"},
			want:   result{Gone: true, Record: "  held= verified=false", Ledger: 1, Deleted: 1},
			events: map[decide.Reason]int{decide.EventFailed: 1, decide.EventDeleted(owner.Node): 1, decide.EventHeld: 0}},

		"delete a Node past its deadline, which lacks what others have": {settings: overdue, rounds: 8,
			begin: func(w *world) *corev1.Node {
				w.verified("control")
				n := w.node("n")
				w.lacks = func(node string) bool { return node == n.Name }
				return n
			},
			writes: []string{"patch Node/status", "create Pod", "patch Node", "patch Node/status", "patch Node", "update ConfigMap", "delete Node", "delete Pod"},
			want:   result{Gone: true, Record: "  held= verified=false", Ledger: 1, Deleted: 1},
			events: map[decide.Reason]int{decide.EventFailed: 1, decide.EventDeleted(owner.Node): 1, decide.EventHeld: 0}},

		"delete a Node": {settings: `{"reconciliation": {"maxRetries": 1}, "nodeManagement": {` + deletes + `, "remediation": {"controlProbe": false}}}`,
			begin: func(w *world) *corev1.Node {
				w.exit = func(*corev1.Pod) int { return 1 }
				return w.node("n")
			},
			writes: []string{"create Pod", "patch Node", "patch Node/status", "patch Pod", "patch Node", "update ConfigMap", "delete Pod", "delete Node"},
			want:   result{Gone: true, Record: "  held= verified=false", Ledger: 1, Deleted: 1},
			events: map[decide.Reason]int{decide.EventFailed: 1, decide.EventExhausted: 1, decide.EventDeleted(owner.Node): 1}},
	}
}

func (w *world) ordinaryPod(n *corev1.Node) {
	w.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "ordinary-" + n.Name}, Spec: corev1.PodSpec{
		NodeName: n.Name, ServiceAccountName: "kube-node-ready-worker", Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
}

// disturbances are what can happen to a write. Each is tried at every write of every path.
var disturbances = map[string]fault{
	"killed after it": {},
	"403":             {code: 403},
	"404":             {code: 404},
	"409":             {code: 409},
	"429":             {code: 429},
	"500":             {code: 500},
	"answer lost":     {code: 500, after: true},
}

// Every path, disturbed at each of its writes, comes to what it comes to undisturbed: nothing is lost, nothing is done twice.
func TestEveryWriteDisturbed(t *testing.T) {
	all := paths()
	maps.Copy(all, rulePaths())
	for name, p := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, p.settings)
			n := p.begin(w)
			l := w.leads()
			p.run(l, n)
			p.check(w, n, &fault{})
			if len(l.errs) > 0 {
				t.Fatal(l.errs)
			}
			if p.writes != nil && !slices.Equal(l.writes, p.writes) {
				t.Fatalf("it writes %q, want %q", l.writes, p.writes)
			}
			if t.Failed() {
				return
			}
			for how, f := range disturbances {
				for at, write := range l.writes {
					f := f
					f.at = at + 1
					t.Run(fmt.Sprintf("%s %d, %s", write, f.at, how), func(t *testing.T) {
						t.Parallel()
						p.disturbed(t, f)
					})
				}
			}
		})
	}
}

func (p path) disturbed(t *testing.T, f fault) {
	w := begin(t, p.settings)
	n := p.begin(w)
	first := w.leads(func(l *leader) { l.fault = f })
	p.run(first, n)
	if first.fault.hit == "" {
		t.Fatal("it was not disturbed")
	}
	if first.isDead() {
		successor := w.leads()
		p.run(successor, n)
		if len(successor.errs) > 0 {
			t.Errorf("its successor meets %v", successor.errs)
		}
	} else {
		p.answered(first, w, n)
	}
	p.check(w, n, &first.fault)
}

// answered checks that the error of the disturbed write was not swallowed, unless it says that there is nothing left to do.
func (p path) answered(l *leader, w *world, n *corev1.Node) {
	w.Helper()
	for _, err := range l.errs {
		if !errors.Is(err, l.fault.err) {
			w.Errorf("an error of no disturbance: %v", err)
		}
	}
	if len(l.errs) > 0 {
		return
	}
	if l.fault.code == http.StatusForbidden && slices.Contains([]string{"patch Node/status", "patch Pod", "delete Pod"}, l.fault.hit) {
		return // it is tried again at the next look, and holds up nothing else
	}
	switch l.fault.hit {
	case "create Pod": // a visible record
		passes := l.fault.code != 403 && l.fault.code != 404
		if next := slices.Index(l.writes[l.fault.at:], "create Pod"); next == 0 || next > 0 && passes || l.fault.after {
			return // it was made at once in the other way, in another try, or all the same
		}
		if p.rounds > 0 {
			return // the node said for a while that it is not deleted, and why
		}
		if w.emitted(n.Name, decide.EventInconclusive)+w.emitted(n.Name, decide.EventHeld) > 0 {
			return
		}
	case "patch Node", "patch Node/status", "patch Pod", "delete Pod", "delete Node", "delete NodeClaim", "patch NodeReadinessRule", "patch NodeReadinessRule/status":
		if l.fault.code == 404 || l.fault.code == 409 { // the object is another one by now, or gone: it is looked at again
			return
		}
	case "update ConfigMap":
		if l.fault.code == 404 || l.fault.code == 409 { // somebody else wrote or deleted the ledger: it is read again
			return
		}
		if l.fault.code == 403 && w.emitted(n.Name, decide.EventHeld) > 0 { // it cannot be begun, and the node says so
			return
		}
	}
	w.Errorf("%q to %q came back as no error", l.fault.err, l.fault.hit)
}

// check compares what the node came to with what it should.
func (p path) check(w *world, n *corev1.Node, f *fault) {
	w.Helper()
	got := w.result(n.Name)
	if got.Deletion == "NodeClaim/claim-"+n.Name {
		got.Deletion = "NodeClaim/claim"
	}
	if f.code != 0 && f.hit == "create Pod" {
		// The attempt that was refused is recorded as one that proves nothing. One whose probe was refused makes the next
		// failure prove nothing either.
		if extra := got.Sequence - p.want.Sequence; extra > 2 || extra != got.Inconclusive-p.want.Inconclusive {
			if !got.Gone {
				w.Errorf("%d attempts more, of which %d are inconclusive", extra, got.Inconclusive-p.want.Inconclusive)
			}
		}
		got.Sequence, got.Inconclusive = p.want.Sequence, p.want.Inconclusive
	}
	if got.Gone && f.hit == "delete Pod" {
		got.Pods = 0 // one that is said to be gone, and is not, goes with its node
	}
	if got != p.want {
		w.Errorf("it came to\n%+v, want\n%+v", got, p.want)
	}
	for reason, most := range p.events {
		// An event is emitted after what it is about was written: one that is lost in between is not made up.
		if e := w.emitted(n.Name, reason); e > most || e < most && f.hit == "" {
			w.Errorf("%d events %s, want %d", e, reason.Name, most)
		}
	}
	w.oncePerTransition()
	for what := range w.gone() {
		if what != "Node/"+n.Name && what != "NodeClaim/claim-"+n.Name {
			w.Errorf("%s was deleted", what)
		}
	}
	if p.want.Deletion != "" && !w.deleting(n.Name) {
		w.Error("the NodeClaim stands")
	}
}
