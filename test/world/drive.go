package world

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Until runs a leader until done, for so long at most, by the world's clock. It reports how long that took, and whether
// it is done.
func (l *Leader) Until(most time.Duration, done func() bool) (took time.Duration, ok bool) {
	l.W.Helper()
	began := l.W.Clock.Now()
	for n := 0; ; n++ {
		if n == maxPasses {
			l.W.Fatalf("the last writes after %s: %v", took, l.Writes[max(0, len(l.Writes)-20):])
		}
		took = l.W.Clock.Now().Sub(began)
		if done() || took >= most {
			return took, done()
		}
		if changed, wait := l.Step(); !changed {
			l.W.Clock.Advance(min(wait, most-took))
		}
	}
}

// Consider remembers the node, as the queue of the remediation reconciler would.
func (l *Leader) Consider(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.considered, name) {
		l.considered = append(l.considered, name)
	}
}

// TakeConsidered empties the queue of the remediation reconciler, and returns what was in it.
func (l *Leader) TakeConsidered() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := l.considered
	l.considered = nil
	return names
}

func (l *Leader) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// WriteCount is how often the leader has written.
func (l *Leader) WriteCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.Writes)
}

// Deliver delivers what watches would: every node for the fleet, every pod as it is now, and those that are gone.
func (l *Leader) Deliver() {
	var nodes corev1.NodeList
	l.W.Must(l.W.API.List(l.W.Ctx, &nodes, client.MatchingLabels{WorldLabel: l.W.Namespace}))
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if old := l.shown[n.Name]; old != nil {
			l.Nodes.View.Changed(old, n)
		}
		l.shown[n.Name] = n.DeepCopy()
		l.Fleet.Observe(l.Nodes.View.Observe(n))
	}
	l.showPods(l.W.Pods(""))
	if l.ruling != nil {
		l.ruling.show(nodes.Items)
	}
}

// ReconcileAll reconciles every node once, and considers the remediations that were asked for. It returns when to look
// again.
func (l *Leader) ReconcileAll() time.Duration {
	wait := l.W.Config.Reconciliation.Interval()
	sooner := func(r reconcile.Result, err error) {
		switch {
		case err != nil:
			l.mu.Lock()
			l.Errs = append(l.Errs, err)
			l.mu.Unlock()
			wait = min(wait, time.Second)
		case r.RequeueAfter > 0:
			wait = min(wait, r.RequeueAfter)
		}
	}
	for {
		if _, ok := l.Nodes.View.Tracker.NextWoken(); !ok {
			break // every node is reconciled anyway
		}
	}
	for _, name := range l.W.NodeNames {
		sooner(l.Nodes.Reconcile(l.W.Ctx, Request(name)))
	}
	if l.ruling != nil {
		for _, name := range l.W.RuleNames {
			sooner(l.ruling.reconciler.Reconcile(l.W.Ctx, Request(name)))
		}
	}
	for _, name := range l.TakeConsidered() {
		r, err := l.Remediations.Reconcile(l.W.Ctx, Request(name))
		if sooner(r, err); err != nil || r.RequeueAfter > 0 {
			l.Consider(name)
		}
	}
	return wait
}

// Request asks for a reconcile of the object.
func Request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

const (
	// settled is how long nothing may change before a world counts as settled. It is longer than worker.keepFailedSeconds.
	settled = 75 * time.Second
	// maxPasses bounds a drive: what takes more is a loop.
	maxPasses = 300
)

// Drive reconciles until nothing changes any more, or the leader is dead.
func (l *Leader) Drive() {
	l.W.Helper()
	quiet := time.Duration(0)
	for n := 0; quiet < settled; n++ {
		if n == maxPasses {
			l.W.Fatalf("nothing settled after %d passes; the last writes: %v", n, l.Writes[max(0, len(l.Writes)-20):])
		}
		changed, wait := l.Step()
		switch {
		case l.isDead():
			return
		case changed:
			quiet = 0
		default:
			quiet += wait
			l.W.Clock.Advance(wait)
		}
	}
}

// Step is one pass, and what kubelets make of it.
func (l *Leader) Step() (changed bool, wait time.Duration) {
	l.W.Helper()
	before := l.WriteCount()
	l.Deliver()
	wait = l.ReconcileAll()
	if l.isDead() {
		return true, 0
	}
	return l.W.Kubelets(l) || l.WriteCount() > before, wait
}

// ReconcileRemediation lets the remediation reconciler consider one node.
func (l *Leader) ReconcileRemediation(n *corev1.Node) error {
	_, err := l.Remediations.Reconcile(l.W.Ctx, Request(n.Name))
	return err
}

// Once runs do before the first write of that name.
func (l *Leader) Once(write string, do func()) {
	done := false
	l.Before = func(w string) {
		if !done && w == write {
			done = true
			do()
		}
	}
}

// Steps lets so many passes go by, and the waits between them.
func (l *Leader) Steps(count int) {
	l.W.Helper()
	for range count {
		if changed, wait := l.Step(); !changed {
			l.W.Clock.Advance(wait)
		}
	}
}

// RunFor drives a leader for some time, in steps of at most a second.
func (l *Leader) RunFor(d time.Duration) {
	l.W.Helper()
	for end := l.W.Clock.Now().Add(d); l.W.Clock.Now().Before(end); {
		_, wait := l.Step()
		l.W.Clock.Advance(min(wait, time.Second))
	}
}
