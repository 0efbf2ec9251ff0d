package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// basisFaults change what a worker's result depends on while the worker runs. Of changes that are drawn without looking,
// few meet a worker. They are drawn by a schedule of their own, which begins with each of them: two nodes are verified
// then, and the controller leads.
var basisFaults = []fault{
	{"profile changed under a worker", 1, func(ctx context.Context, w *world, rng *rand.Rand) error {
		return w.underWorker(ctx, w.verifiedSlot(rng), closeGate, otherProfile)
	}},
	{"taint put back under a worker", 1, func(ctx context.Context, w *world, rng *rand.Rand) error {
		return w.underWorker(ctx, w.verifiedSlot(rng), labelled(verifiedLabel, ""), closeGate)
	}},
}

const (
	// startsWithin is how long a worker is waited for, where it may not come.
	startsWithin = 5 * time.Second
	// basisApart lies between the first two of these faults, so that they meet different workers.
	basisApart = 2500 * time.Millisecond
)

// underWorker changes a node so that a worker starts on it, and changes it again while that runs. Its checks pass.
func (w *world) underWorker(ctx context.Context, slot int, first, then func(*corev1.Node) error) error {
	w.fails(slot, 0)
	err := w.mark(slot, first)
	for end, there := time.Now().Add(startsWithin), false; !there && time.Now().Before(end); pause(ctx, 20*time.Millisecond) {
		w.check.look(func() { there = slices.Contains(w.check.underWay(), slot) })
	}
	return errors.Join(err, w.mark(slot, then))
}

// underWay are the slots of nodes on which a worker runs, or may start.
func (c *checker) underWay() (some []int) {
	for _, p := range c.pods {
		if n := c.ever[owner(p.pod)]; n != nil && !n.gone && isVerify(p.pod) && p.asked.IsZero() && p.ended.IsZero() {
			some = append(some, slotOf(n.node.Name))
		}
	}
	return some
}

// otherProfile gives a node the label of the profile that it does not have.
func otherProfile(n *corev1.Node) error {
	return labelled(labelProfile, map[string]string{"": "b"}[n.Labels[labelProfile]])(n)
}
