package effects

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// runs acts as a process does, with several reconciles at once, until stop is closed.
func (l *leader) runs(stop <-chan struct{}, wg *sync.WaitGroup) {
	const workers = 3
	until := func(do func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					do()
					time.Sleep(10 * time.Millisecond) // the API server has others to serve
				}
			}
		})
	}
	until(l.show)
	for i := range workers {
		until(func() {
			for at := i; at < len(l.w.nodes); at += workers {
				if _, err := l.nodes.Reconcile(l.w.ctx, request(l.w.nodes[at])); err != nil {
					l.w.Error(err)
				}
			}
		})
	}
	until(func() {
		for _, name := range l.takeConsidered() {
			if _, err := l.deletions.Reconcile(l.w.ctx, request(name)); err != nil {
				l.w.Error(err)
			}
		}
	})
}

// Two leaders, both sure of it, act on the same nodes at once: no attempt is made or counted twice, no node has two workers,
// and no more is deleted than the limit allows.
func TestTwoLeadersAtOnce(t *testing.T) {
	const well, broken, limit = 14, 6, 3
	w := begin(t, fmt.Sprintf(`{"nodeManagement": {%s, "remediation": {"maxDeletionsPerHour": %d}}}`, deletes, limit))
	var mu sync.Mutex
	seen := map[string]bool{}
	w.exit = func(p *corev1.Pod) int {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !seen[string(p.UID)]: // it takes a while
			seen[string(p.UID)] = true
			return stays
		case p.Labels["node-ready/purpose"] == "verify" && strings.Contains(p.Annotations["node-ready/node"], "broken"):
			return 1
		}
		return 0
	}
	for i := range well {
		w.claim(w.node(fmt.Sprintf("well-%d", i), pooled))
	}
	for i := range broken {
		w.claim(w.node(fmt.Sprintf("broken-%d", i), pooled))
	}
	stop, wg := make(chan struct{}), &sync.WaitGroup{}
	for range 2 {
		w.leads().runs(stop, wg)
	}
	for end, left := time.Now().Add(90*time.Second), 20; left > 0 && !t.Failed(); time.Sleep(20 * time.Millisecond) {
		w.kubelets()
		w.clock.advance(500 * time.Millisecond)
		if w.unfinished(well, broken, limit) == "" {
			left-- // and it stays so
		}
		if time.Now().After(end) {
			break
		}
	}
	close(stop)
	wg.Wait()
	if fault := w.unfinished(well, broken, limit); fault != "" {
		t.Error(fault)
	}
	if n := len(w.ledger()); n != limit {
		t.Errorf("%d entries in the ledger, want %d", n, limit)
	}
	w.oncePerTransition()
	// Each failed node failed twice; an attempt is inconclusive only where no verified node was there yet to compare with.
	for _, name := range w.nodes {
		if _, f := w.get(name); strings.Contains(name, "broken") && (f.Record.Attempts != 2 || !f.Gated || f.Labelled) ||
			strings.Contains(name, "well") && (f.Record.Sequence != 1 || f.Record.Attempts+f.Record.Inconclusive != 0) {
			t.Errorf("%s: %+v", name, f.Record)
		}
	}
}

// unfinished says what is not yet as it should be in the end.
func (w *world) unfinished(well, broken, limit int) string {
	deleting, held, verified := 0, 0, 0
	for _, name := range w.nodes {
		_, f := w.get(name)
		switch {
		case w.deleting(name):
			deleting++
		case f.Record.Held == decide.GuardMaxDeletionsPerHour:
			held++
		case f.Labelled && !f.Gated:
			verified++
		}
	}
	if deleting != limit || held != broken-limit || verified != well || len(w.gone()) != limit {
		return fmt.Sprintf("%d NodeClaims deleted (%v), want %d; %d held, %d verified", deleting, w.gone(), limit, held, verified)
	}
	return ""
}

// oncePerTransition checks that nothing was said twice. What has the same key becomes one event: a deletion that is asked
// for again, and what no write of the node guards, which is a worker's start, the deadline, and a taint that is adopted and not written down yet.
func (w *world) oncePerTransition() {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for of, keys := range w.events {
		for key, times := range keys {
			if times > 1 && !strings.HasPrefix(key, "deadline@") && !slices.ContainsFunc([]decide.Reason{decide.EventDeleted(owner.Node), decide.EventDeleted("NodeClaim"), decide.EventStarted, rule.EventTaintAdopted},
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

// A leader whose cache is behind, at every point of every path and by any number of writes, changes nothing about what the
// path comes to: it creates no pod of an attempt that is recorded, and deletes no worker whose result nobody has recorded.
func TestStaleLeaderBesideEveryPath(t *testing.T) {
	for name, p := range paths() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, p.settings)
			n := p.begin(w)
			l, old := w.leads(), w.leads()
			var history []*corev1.Node
			beside := func() {
				for _, then := range history {
					old.stale[n.Name] = then
					old.show()
					old.pass()
				}
			}
			for pass, round, quiet := 0, 0, time.Duration(0); quiet < settled; pass++ {
				if pass == maxPasses {
					t.Fatalf("nothing settled; the last writes: %v", l.writes[max(0, len(l.writes)-20):])
				}
				if now, _ := w.get(n.Name); now != nil && (len(history) == 0 || marked(history[len(history)-1]) != marked(now)) {
					history = append(history, now)
					beside()
				}
				before := l.written()
				l.show()
				wait := l.pass()
				switch {
				case w.kubelets(l, old):
					beside() // a worker has ended, and nobody has recorded it
					quiet = 0
				case l.written() > before:
					quiet = 0
				default:
					quiet += wait
					w.clock.advance(wait)
				}
				if now, _ := w.get(n.Name); quiet >= settled && now != nil && round < p.rounds {
					round, quiet = round+1, 0
					w.clock.advance(5 * time.Minute)
				}
			}
			if len(history) < 2 && !strings.HasPrefix(name, "delete a Node") {
				t.Errorf("the node was seen in %d states", len(history))
			}
			p.check(w, n, &fault{})
		})
	}
}
