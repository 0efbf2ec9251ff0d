package node_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// runs acts like a process, with several concurrent reconciles, until stop is closed.
func runs(l *world.Leader, stop <-chan struct{}, wg *sync.WaitGroup) {
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
	until(l.Deliver)
	for i := range workers {
		until(func() {
			for at := i; at < len(l.W.NodeNames); at += workers {
				if _, err := l.Nodes.Reconcile(l.W.Ctx, world.Request(l.W.NodeNames[at])); err != nil {
					l.W.Error(err)
				}
			}
		})
	}
	until(func() {
		for _, name := range l.TakeConsidered() {
			if _, err := l.Remediations.Reconcile(l.W.Ctx, world.Request(name)); err != nil {
				l.W.Error(err)
			}
		}
	})
}

// Two processes act on the same nodes at once, and each believes that it is the leader. No attempt is made or counted
// twice, no node has two workers, and no more nodes are deleted than the limit allows.
func TestTwoLeadersAtOnce(t *testing.T) {
	const well, broken, limit = 6, 4, 2
	w := world.Begin(t, fmt.Sprintf(`{"nodeManagement": {%s, "remediation": {"maxDeletionsPerHour": %d}}}`, world.Deletes, limit))
	var mu sync.Mutex
	seen := map[string]bool{}
	w.Exit = func(p *corev1.Pod) int {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !seen[string(p.UID)]: // it takes a while
			seen[string(p.UID)] = true
			return world.Stays
		case p.Labels["node-ready/purpose"] == "verify" && strings.Contains(p.Annotations["node-ready/node"], "broken"):
			return 1
		}
		return 0
	}
	for i := range well {
		w.Claim(w.Node(fmt.Sprintf("well-%d", i), world.Pooled))
	}
	for i := range broken {
		w.Claim(w.Node(fmt.Sprintf("broken-%d", i), world.Pooled))
	}
	stop, wg := make(chan struct{}), &sync.WaitGroup{}
	for _, l := range []*world.Leader{w.Lead(), w.Lead()} { // both are there before one acts
		runs(l, stop, wg)
	}
	for end, left := time.Now().Add(90*time.Second), 20; left > 0 && !t.Failed(); time.Sleep(20 * time.Millisecond) {
		w.Kubelets()
		w.Clock.Advance(500 * time.Millisecond)
		if unfinished(w, well, broken, limit) == "" {
			left-- // and it stays so
		}
		if time.Now().After(end) {
			break
		}
	}
	close(stop)
	wg.Wait()
	if fault := unfinished(w, well, broken, limit); fault != "" {
		t.Error(fault)
	}
	if n := len(w.Ledger()); n != limit {
		t.Errorf("%d entries in the ledger, want %d", n, limit)
	}
	w.OncePerTransition()
	// Each failed node failed twice; an attempt is inconclusive only where no verified node was there yet to compare with.
	for _, name := range w.NodeNames {
		if _, f := w.Get(name); strings.Contains(name, "broken") && (f.Record.Attempts != 2 || !f.Gated || f.Labelled) ||
			strings.Contains(name, "well") && (f.Record.Sequence != 1 || f.Record.Attempts+f.Record.Inconclusive != 0) {
			t.Errorf("%s: %+v", name, f.Record)
		}
	}
}

// unfinished says what differs from the expected end state.
func unfinished(w *world.World, well, broken, limit int) string {
	deleting, held, verified := 0, 0, 0
	for _, name := range w.NodeNames {
		_, f := w.Get(name)
		switch {
		case w.Deleting(name):
			deleting++
		case f.Record.Held == decide.GuardMaxDeletionsPerHour:
			held++
		case f.Labelled && !f.Gated:
			verified++
		}
	}
	if deleting != limit || held != broken-limit || verified != well || len(w.Deleted()) != limit {
		return fmt.Sprintf("%d NodeClaims deleted (%v), want %d; %d held, %d verified", deleting, w.Deleted(), limit, held, verified)
	}
	return ""
}

func TestStaleLeaderBesideNodePaths(t *testing.T) { world.StaleLeaderBeside(t, nodePaths()) }
