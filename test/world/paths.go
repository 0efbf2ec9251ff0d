package world

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

// OncePerTransition checks that nothing was reported twice. Some events may be emitted again, because their equal key
// makes them one event. These are a deletion that is requested again, and events that no write of the node guards. The
// latter are a worker's start, the deadline, and a taint that is adopted but not recorded yet.
func (w *World) OncePerTransition() {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for of, keys := range w.Events {
		for key, times := range keys {
			if times > 1 && !strings.HasPrefix(key, "deadline@") && !slices.ContainsFunc([]decide.Reason{decide.EventDeleted(owner.Node), decide.EventDeleted("NodeClaim"), decide.EventRemediationStarted,
				decide.EventStarted, rule.EventTaintAdopted},
				func(reason decide.Reason) bool { return strings.HasSuffix(of, reason.Name) }) {
				w.Errorf("event %s %s was emitted %d times", of, key, times)
			}
		}
	}
}

// marked is what a node's marks say, apart from the condition.
func marked(n *corev1.Node) string {
	return fmt.Sprint(n.Annotations, n.Labels, n.Spec.Taints)
}

// StaleLeaderBeside runs a second leader whose cache is behind, at every point of every path and by any number of
// writes. It shows that this leader does not change the result of the path. It creates no pod of an attempt that is
// recorded, and deletes no worker whose result is not recorded. The test is skipped with -short, like
// DisturbEveryWrite.
func StaleLeaderBeside(t *testing.T, paths map[string]Path) {
	missing.Short(t, "in a world one thing happens after the other")
	for name, p := range paths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := Begin(t, p.Settings)
			n := p.Begin(w)
			l, old := w.Lead(), w.Lead()
			var history []*corev1.Node
			beside := func() {
				for _, then := range history {
					old.StaleNodes[n.Name] = then
					old.Deliver()
					old.ReconcileAll()
				}
			}
			for pass, round, quiet := 0, 0, time.Duration(0); quiet < settled; pass++ {
				if pass == maxPasses {
					t.Fatalf("nothing settled; the last writes: %v", l.Writes[max(0, len(l.Writes)-20):])
				}
				if now, _ := w.Get(n.Name); now != nil && (len(history) == 0 || marked(history[len(history)-1]) != marked(now)) {
					history = append(history, now)
					beside()
				}
				before := l.WriteCount()
				l.Deliver()
				wait := l.ReconcileAll()
				switch {
				case w.Kubelets(l, old):
					beside() // a worker has ended, and nobody has recorded it
					quiet = 0
				case l.WriteCount() > before:
					quiet = 0
				default:
					quiet += wait
					w.Clock.Advance(wait)
				}
				if now, _ := w.Get(n.Name); quiet >= settled && now != nil && round < p.Rounds {
					round, quiet = round+1, 0
					w.Clock.Advance(5 * time.Minute)
				}
			}
			if len(history) < 2 && !strings.HasPrefix(name, "delete a Node") {
				t.Errorf("the node was seen in %d states", len(history))
			}
			p.check(w, n, &Fault{})
		})
	}
}

// Path is a way through the reconcilers that is disturbed at each of its writes in turn.
type Path struct {
	Settings string
	// Begin makes the nodes and returns the one that counts.
	Begin func(*World) *corev1.Node
	// Writes is what the undisturbed run writes; nil where the order of two nodes' writes is of no account.
	Writes []string
	// Most is how often the undisturbed run reads from the API server at most. A node whose retries are spent may be
	// looked at once or twice less, because of the jitter of waits.
	Most Requests
	// Rounds: it does not settle, and is looked at so often, five minutes apart.
	Rounds int
	// Then is what happens once it has settled, one after the other.
	Then []func(w *World, node string)
	// Want is what the node comes to, undisturbed; its events by reason.
	Want   Result
	Events map[decide.Reason]int
	// Check looks at more of what the path comes to; nil for nothing.
	Check func(w *World, n *corev1.Node)
}

// Requests are requests that no cache answers: reads of a node, and lists of objects of any kind.
type Requests struct{ Reads, Lists int }

// Run drives a leader to where the path ends.
func (p Path) Run(l *Leader, n *corev1.Node) {
	l.W.Helper()
	l.Drive()
	for ; l.W.done < len(p.Then) && !l.isDead(); l.Drive() {
		p.Then[l.W.done](l.W, n.Name)
		l.W.done++
	}
	for range p.Rounds {
		if have, _ := l.W.Get(n.Name); have == nil || l.isDead() {
			return
		}
		l.W.Clock.Advance(5 * time.Minute)
		l.Drive()
	}
}

// Passed is what a node comes to that passes its first attempt.
var Passed = Result{Labelled: true, Record: "passed  held= verified=true", Sequence: 1, Condition: "True ChecksPassed"}

// disturbances are what can happen to a write. Each is tried at every write of every path.
var disturbances = map[string]Fault{
	"killed after it": {},
	"403":             {Code: 403},
	"404":             {Code: 404},
	"409":             {Code: 409},
	"422":             {Code: 422},
	"429":             {Code: 429},
	"500":             {Code: 500},
	"answer lost":     {Code: 500, After: true},
}

// DisturbEveryWrite shows that every path, disturbed at each of its writes, comes to what it comes to undisturbed: nothing is lost,
// nothing is done twice. It is left out with -short, for make race: in a world one thing happens after the other.
func DisturbEveryWrite(t *testing.T, paths map[string]Path) {
	missing.Short(t, "in a world one thing happens after the other")
	for name, p := range paths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("on a server", func(t *testing.T) {
				t.Parallel()
				p.undisturbed(OnServer(t, p.Settings))
			})
			l := p.undisturbed(Begin(t, p.Settings))
			if t.Failed() {
				return
			}
			for how, f := range disturbances {
				for at, write := range l.Writes {
					if f.Code == http.StatusTooManyRequests && write != "create Pod" {
						continue // any other write takes it as it takes a 500
					}
					f := f
					f.At = at + 1
					t.Run(fmt.Sprintf("%s %d, %s", write, f.At, how), func(t *testing.T) {
						t.Parallel()
						p.disturbed(t, f)
					})
				}
			}
		})
	}
}

func (p Path) undisturbed(w *World) *Leader {
	w.Helper()
	n := p.Begin(w)
	l := w.Lead()
	p.Run(l, n)
	p.check(w, n, &Fault{})
	if len(l.Errs) > 0 {
		w.Fatal(l.Errs)
	}
	if p.Writes != nil && !slices.Equal(l.Writes, p.Writes) {
		w.Fatalf("it writes %q, want %q", l.Writes, p.Writes)
	}
	latest, inMemory := l.LiveLists()
	got := Requests{Reads: len(l.Reads), Lists: len(latest) + len(inMemory)}
	if got.Reads > p.Most.Reads || got.Lists > p.Most.Lists {
		w.Errorf("it takes %+v, at most %+v: %v, %v", got, p.Most, latest, inMemory)
	}
	return l
}

func (p Path) disturbed(t *testing.T, f Fault) {
	w := Begin(t, p.Settings)
	n := p.Begin(w)
	first := w.Lead(func(l *Leader) { l.Fault = f })
	p.Run(first, n)
	if first.Fault.hit == "" {
		t.Fatal("it was not disturbed")
	}
	if first.isDead() {
		successor := w.Lead()
		p.Run(successor, n)
		if len(successor.Errs) > 0 {
			t.Errorf("its successor meets %v", successor.Errs)
		}
	} else {
		p.answered(first, w, n)
	}
	p.check(w, n, &first.Fault)
}

// answered checks that the error of the disturbed write was not swallowed, unless it says that there is nothing left to do.
func (p Path) answered(l *Leader, w *World, n *corev1.Node) {
	w.Helper()
	for _, err := range l.Errs {
		if !errors.Is(err, l.Fault.Err) {
			w.Errorf("an error of no disturbance: %v", err)
		}
	}
	if len(l.Errs) > 0 {
		return
	}
	refused := l.Fault.Code == http.StatusForbidden || l.Fault.Code == http.StatusUnprocessableEntity
	if refused && slices.Contains([]string{"patch Node/status", "patch Pod", "delete Pod"}, l.Fault.hit) {
		return // it is tried again at the next look, and holds up nothing else
	}
	switch l.Fault.hit {
	case "create Unstructured":
		if l.Fault.Code == http.StatusConflict {
			return // it is decided again, and created under the same name
		}
	case "create Pod": // a visible record
		passes := !refused && l.Fault.Code != 404
		if next := slices.Index(l.Writes[l.Fault.At:], "create Pod"); next == 0 || next > 0 && passes || l.Fault.After {
			return // it was made at once in the other way, in another try, or all the same
		}
		if p.Rounds > 0 {
			return // the node said for a while that it is not deleted, and why
		}
		if w.EventCount(n.Name, decide.EventInconclusive)+w.EventCount(n.Name, decide.EventHeld) > 0 {
			return
		}
	case "patch Node", "patch Node/status", "patch Pod", "delete Pod", "delete Node", "delete NodeClaim", "patch NodeReadinessRule", "patch NodeReadinessRule/status":
		if l.Fault.Code == 404 || l.Fault.Code == 409 { // the object is another one by now, or gone: it is looked at again
			return
		}
	case "update ConfigMap":
		if l.Fault.Code == 404 || l.Fault.Code == 409 { // somebody else wrote or deleted the ledger: it is read again
			return
		}
		if refused && w.EventCount(n.Name, decide.EventHeld) > 0 { // it cannot be begun, and the node says so
			return
		}
	}
	w.Errorf("%q to %q came back as no error", l.Fault.Err, l.Fault.hit)
}

// check compares what the node came to with what it should.
func (p Path) check(w *World, n *corev1.Node, f *Fault) {
	if p.Check != nil {
		p.Check(w, n)
	}
	w.Helper()
	got := w.result(n.Name)
	if got.Deletion == "NodeClaim/claim-"+n.Name {
		got.Deletion = "NodeClaim/claim"
	}
	if f.Code != 0 && f.hit == "create Pod" {
		// The attempt that was refused is recorded as one that proves nothing. One whose probe was refused makes the next
		// failure prove nothing either.
		if extra := got.Sequence - p.Want.Sequence; extra > 2 || extra != got.Inconclusive-p.Want.Inconclusive {
			if !got.Gone {
				w.Errorf("%d attempts more, of which %d are inconclusive", extra, got.Inconclusive-p.Want.Inconclusive)
			}
		}
		got.Sequence, got.Inconclusive = p.Want.Sequence, p.Want.Inconclusive
	}
	if got.Gone && f.hit == "delete Pod" {
		got.Pods = 0 // one that is said to be gone, and is not, goes with its node
	}
	if got != p.Want {
		w.Errorf("it came to\n%+v, want\n%+v", got, p.Want)
	}
	for reason, most := range p.Events {
		// An event is emitted after what it is about was written: one that is lost in between is not made up.
		if e := w.EventCount(n.Name, reason); e > most || e < most && f.hit == "" {
			w.Errorf("%d events %s, want %d", e, reason.Name, most)
		}
	}
	w.OncePerTransition()
	for what := range w.Deleted() {
		if what != "Node/"+n.Name && what != "NodeClaim/claim-"+n.Name {
			w.Errorf("%s was deleted", what)
		}
	}
	if p.Want.Deletion != "" && !w.Deleting(n.Name) {
		w.Error("the NodeClaim stands")
	}
}
