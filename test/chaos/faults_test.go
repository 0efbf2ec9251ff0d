package chaos

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// fault is one kind of disturbance.
type fault struct {
	name   string
	weight int
	// do disturbs; rng is the step's own, so that a step is the same whatever came before it. An error is of no account: it is
	// as if the one who acts had not come to it.
	do func(ctx context.Context, w *world, rng *rand.Rand) error
}

// faults are all kinds.
func faults() []fault {
	return slices.Concat(controllerFaults, clusterFaults, nodeFaults, workerFaults)
}

var controllerFaults = []fault{
	{"controller killed", 2, func(_ context.Context, w *world, rng *rand.Rand) error {
		w.replicas[rng.IntN(replicas)].do((*process.Process).Kill)
		return nil
	}},
	{"controller stopped and continued", 2, func(ctx context.Context, w *world, rng *rand.Rand) error {
		w.replicas[rng.IntN(replicas)].freeze(ctx, between(rng, time.Second, 5*time.Second))
		return nil
	}},
	{"deletions paused or resumed", 2, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.pauseRemediation([]string{"true", "false"}[rng.IntN(2)])
	}},
}

var clusterFaults = []fault{
	{"requests disturbed", 8, func(ctx context.Context, w *world, rng *rand.Rand) error {
		w.weather(ctx, rng, weather{latency: between(rng, 1, 150*time.Millisecond), refused: rng.IntN(10), lost: rng.IntN(20), answered: rng.IntN(40)})
		return nil
	}},
	{"watches late", 6, func(ctx context.Context, w *world, rng *rand.Rand) error {
		w.weather(ctx, rng, weather{late: []string{"/nodes", "/pods", "/"}[rng.IntN(3)], lag: between(rng, 100*time.Millisecond, 1500*time.Millisecond)})
		return nil
	}},
	{"NodeClaims not listed", 3, func(ctx context.Context, w *world, rng *rand.Rand) error {
		w.weather(ctx, rng, weather{hidden: "/nodeclaims"})
		return nil
	}},
	{"connections cut", 3, func(_ context.Context, w *world, rng *rand.Rand) error {
		w.proxies[rng.IntN(replicas)].drop()
		return nil
	}},
	{"controller parted from the API server", 2, func(ctx context.Context, w *world, rng *rand.Rand) error {
		w.weather(ctx, rng, weather{parted: true})
		return nil
	}},
	{"API server restarted", 1, func(_ context.Context, w *world, _ *rand.Rand) error { return w.server.restart() }},
	{"API server stopped and continued", 1, func(ctx context.Context, w *world, rng *rand.Rand) error {
		w.server.freeze(ctx, between(rng, 500*time.Millisecond, 2*time.Second))
		return nil
	}},
	{"etcd restarted", 1, func(_ context.Context, w *world, _ *rand.Rand) error { return w.etcd.restart() }},
	{"rule made or deleted", 2, func(_ context.Context, w *world, rng *rand.Rand) error {
		if rng.IntN(3) == 0 {
			return w.api.Delete(w.ctx, rule())
		}
		return w.api.Create(w.ctx, rule())
	}},
}

var nodeFaults = []fault{
	{"node rebooted", 4, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.reboot(rng.IntN(slots))
	}},
	{"node replaced", 2, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.remove(rng.IntN(slots)) // another joins at once
	}},
	{"node replaced, with the record of the one before", 2, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.restore(managed + rng.IntN(slots-managed))
	}},
	{"node gone for a while", 1, func(_ context.Context, w *world, rng *rand.Rand) error {
		slot := rng.IntN(slots)
		w.mu.Lock()
		w.absent[slot] = time.Now().Add(between(rng, time.Second, 4*time.Second))
		w.mu.Unlock()
		return w.remove(slot)
	}},
	{"kubelet silent", 2, func(ctx context.Context, w *world, rng *rand.Rand) error {
		slot, d := rng.IntN(slots), between(rng, time.Second, 4*time.Second)
		w.mu.Lock()
		w.silent[slot] = time.Now().Add(d)
		w.mu.Unlock()
		err := w.condition(slot, corev1.NodeReady, corev1.ConditionUnknown)
		pause(ctx, d)
		if _, dead := w.hit(kubeletDead, slot); dead {
			return err
		}
		return errors.Join(err, w.condition(slot, corev1.NodeReady, corev1.ConditionTrue))
	}},
	{"most of a pool fails while deletions are paused", 2, func(ctx context.Context, w *world, rng *rand.Rand) error {
		err := w.pauseRemediation("true")
		for _, slot := range rng.Perm(managed)[1:] {
			w.mu.Lock()
			w.ill[slot] = time.Now().Add(10 * time.Second)
			w.mu.Unlock()
			err = errors.Join(err, w.remove(slot)) // one that never was verified may be deleted
		}
		pause(ctx, between(rng, 6*time.Second, 8*time.Second))
		return errors.Join(err, w.pauseRemediation("false"))
	}},
	{"checks begin to fail, or to pass", 4, func(_ context.Context, w *world, rng *rand.Rand) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.bad[rng.IntN(slots)] = rng.IntN(2) == 0
		return nil
	}},
	{"foreign mark", 4, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.mark(rng.IntN(slots), foreignMark(rng))
	}},
	{"foreign marks in a tight loop", 4, func(_ context.Context, w *world, rng *rand.Rand) error {
		slot := rng.IntN(slots)
		for end := time.Now().Add(between(rng, time.Second, 4*time.Second)); time.Now().Before(end) && w.ctx.Err() == nil; {
			if w.mark(slot, foreignMark(rng)) != nil {
				pause(w.ctx, 50*time.Millisecond) // there is no such node, or no API server
			}
		}
		return nil
	}},
	{"node leaving, or staying", 2, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.mark(rng.IntN(slots), leaving(rng.IntN(2) == 0))
	}},
	{"profile changed", 5, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.mark(rng.IntN(slots), labelled(labelProfile, []string{"", "b"}[rng.IntN(2)]))
	}},
	{"skip set or removed", 2, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.mark(rng.IntN(slots), annotated("node-ready/skip", []string{"", "true"}[rng.IntN(2)]))
	}},
	{"deletion opted out of", 3, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.mark(rng.IntN(slots), annotated(optOuts[rng.IntN(4)], []string{"", "true", "true"}[rng.IntN(3)]))
	}},
	{"gating taint put back", 3, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.mark(rng.IntN(slots), closeGate)
	}},
	{"label removed", 3, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.mark(rng.IntN(slots), labelled(verifiedLabel, ""))
	}},
	{"label removed, then the taint put back", 3, func(ctx context.Context, w *world, rng *rand.Rand) error {
		slot := rng.IntN(slots)
		err := w.mark(slot, labelled(verifiedLabel, ""))
		pause(ctx, between(rng, 0, 800*time.Millisecond))
		return errors.Join(err, w.mark(slot, closeGate))
	}},
	{"record removed or spoilt", 1, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.mark(rng.IntN(slots), spoil(rng))
	}},
	{"agent's condition changed", 4, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.condition(rng.IntN(slots), agentReady, []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[rng.IntN(2)])
	}},
	{"left or joined the rule's nodes", 1, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.mark(rng.IntN(slots), labelled(labelAgent, []string{"", "true"}[rng.IntN(2)]))
	}},
	forges,
	{"ordinary pod made", 2, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.ordinary(rng.IntN(slots), rng.Uint64())
	}},
}

var workerFaults = []fault{
	{"worker deleted", 3, func(_ context.Context, w *world, rng *rand.Rand) error {
		pod, err := w.someWorker(rng)
		if err != nil || pod == nil {
			return err
		}
		return w.end(pod, rng.Int64N(2))
	}},
	{"worker forged", 3, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.forge(rng.IntN(slots), rng.IntN(2) == 0)
	}},
}

// named are the kinds of faults with these names, separated by semicolons.
func named(t *testing.T, names string) (only []string) {
	t.Helper()
	for name := range strings.SplitSeq(names, ";") {
		name = strings.TrimSpace(name)
		lasts := slices.ContainsFunc(endlessKinds, func(k endlessKind) bool { return k.name == name })
		if !lasts && !slices.ContainsFunc(slices.Concat(faults(), suspicionFaults, conditionFaults, actorFaults, basisFaults, amendments), func(f fault) bool { return f.name == name }) {
			t.Fatalf("no fault is called %q", name)
		}
		only = append(only, name)
	}
	return only
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)))
}

// step is one fault of a run's schedule.
type step struct {
	at    time.Duration
	fault fault
	seed  uint64
}

// schedule is what a seed does, and when: nothing of it depends on what happens. Where kinds of faults are named, there are no others.
func schedule(seed uint64, s settings, during time.Duration, only []string) (steps []step) {
	all, pause := faults(), 600*time.Millisecond
	if s.clear { // and few change a node before it has the condition
		all, pause = slices.Concat(nodeFaults, workerFaults), 5*time.Second
	}
	steps = append(scheduleOf(all, seed, 0, during, pause, only), s.drawAmendment(seed, during, only)...)
	begins := func(at time.Duration, f fault) {
		if len(only) == 0 || slices.Contains(only, f.name) {
			steps = append(steps, step{at: at, fault: f, seed: seed})
		}
	}
	each := func(all []fault, stream uint64, pause time.Duration) {
		begins(0, all[0])
		steps = append(steps, scheduleOf(all, seed, stream, during, pause, only)...)
	}
	each(suspicionFaults, 11, 2*time.Second)
	if s.action == setCondition {
		each(conditionFaults, 15, 3*time.Second)
	}
	each(actorFaults, 17, 5*pause)
	each(basisFaults, 19, 8*pause)
	begins(basisApart, basisFaults[1])
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return steps
}

// scheduleOf draws from some faults, by a stream of their own, with a pause of at most so long between two.
func scheduleOf(all []fault, seed, stream uint64, during, pause time.Duration, only []string) (steps []step) {
	rng, sum := rand.New(rand.NewPCG(seed, stream)), 0 //nolint:gosec // no secret
	if len(only) > 0 {
		all = slices.DeleteFunc(slices.Clone(all), func(f fault) bool { return !slices.Contains(only, f.name) })
	}
	for _, f := range all {
		sum += f.weight
	}
	for at := between(rng, 0, time.Second); sum > 0 && at < during; at += between(rng, 0, pause) {
		n := rng.IntN(sum)
		for _, f := range all {
			if n -= f.weight; n < 0 {
				steps = append(steps, step{at: at, fault: f, seed: rng.Uint64()})
				break
			}
		}
	}
	return steps
}
