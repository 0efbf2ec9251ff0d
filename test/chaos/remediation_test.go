package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/rights"
)

// The values of remediation.action.
const (
	deleteOwner  = "delete"
	setCondition = "condition"
)

const (
	// required is the default type of the condition of remediation.condition, otherType that of another configuration.
	required  corev1.NodeConditionType = "node-ready/RemediationRequired"
	otherType corev1.NodeConditionType = "chaos.example/Repair"
	// ours is the reason of the condition, whatever its type.
	ours = "NodeReadyVerificationFailed"
	// forgedMessage is that of a condition which somebody else sets with our reason.
	forgedMessage = "forged"
)

// drawRepair draws what makes nodes suspect and what is done about those that fail. It is drawn apart from all else.
func (s *settings) drawRepair(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 12)) //nolint:gosec // no secret
	s.cooldown = []time.Duration{time.Hour, 6 * time.Second}[rng.IntN(2)]
	s.suspectFor, s.closes = rng.IntN(2), rng.IntN(2) == 0
	s.action, s.condition, s.clear = []string{deleteOwner, setCondition}[seed/2%2], required, rng.IntN(3) > 0
	if s.clear = s.clear && s.action == setCondition; s.action == setCondition { // else few nodes get to it within a run
		s.neverVerifiedOnly = s.neverVerifiedOnly && rng.IntN(2) == 0
		s.perHour, s.inFlight, s.maxUnhealthy = 3*s.perHour, s.inFlight+1, max(s.maxUnhealthy, 50)
	}
	if s.clear { // many nodes have it at once
		s.inFlight, s.maxUnhealthy = s.inFlight+1, 100
	}
}

// repairs adds to nodeManagement what was drawn.
func (s settings) repairs(nodeManagement map[string]any) {
	nodeManagement["deleteFailedNodes"] = !s.off
	nodeManagement["reverify"] = map[string]any{"cooldownSeconds": int(s.cooldown / time.Second), "onConditions": []any{
		map[string]any{"type": suspectTypes[0], "taint": s.closes},
		map[string]any{"type": suspectTypes[1], "forSeconds": s.suspectFor},
	}}
	remediation := nodeManagement["remediation"].(map[string]any)
	remediation["action"], remediation["condition"] = s.action, map[string]any{"type": s.condition}
	remediation["dryRun"] = s.dryRun
	if s.leavesOut {
		nodeManagement["nodeSelector"] = map[string]any{"matchExpressions": []any{
			map[string]any{"key": labelPool, "operator": "DoesNotExist"}}}
	}
}

// leavesOutNode reports whether the selector leaves the node out.
func (s settings) leavesOutNode(n *corev1.Node) bool { return s.leavesOut && n.Labels[labelPool] != "" }

// checksOf are the checks that a node with these labels must pass.
func (s settings) checksOf(labels map[string]string) string {
	i := 0
	if labels[labelProfile] == "b" {
		i = 1
	}
	if s.corrected {
		i += 2
	}
	return checkNames[i]
}

// checkNames are the checks of the two profiles, and those of other configurations.
var checkNames = []string{"checks-a", "checks-b", "checks-c", "checks-d"}

// goesWithin is how long the condition may stay on a node that should not have it: the interval, and two seconds by which
// the controller may read the ledger late, and some more for a busy machine. lasts is longer, so that one that stays is
// found.
const (
	interval   = 2 * time.Second
	goesWithin = interval + 5*time.Second
	lasts      = goesWithin + 2*time.Second
)

// amendments restart the controllers with another configuration, for a while.
var amendments = []fault{
	amendment("dry run of remediation", func(s *settings) { s.dryRun = true }),
	amendment("remediation off", func(s *settings) { s.off = true }),
	amendment("another action", func(s *settings) {
		s.action = map[string]string{setCondition: deleteOwner, deleteOwner: setCondition}[s.action]
	}),
	amendment("another type of the condition", func(s *settings) { s.condition = otherType }),
	amendment("a selector that leaves the pool out", func(s *settings) { s.leavesOut = true }),
	amendment("other checks", func(s *settings) { s.corrected = true }),
}

func amendment(name string, amend func(*settings)) fault {
	return fault{"configuration: " + name, 1, func(ctx context.Context, w *world, _ *rand.Rand) error {
		other := w.settings
		amend(&other)
		return w.amend(ctx, other, lasts)
	}}
}

// drawAmendment draws one of them for each run with the condition, and for a third of the others. It begins when the
// other faults are about to end.
func (s settings) drawAmendment(seed uint64, during time.Duration, only []string) []step {
	rng := rand.New(rand.NewPCG(seed, 13)) //nolint:gosec // no secret
	some := slices.DeleteFunc(slices.Clone(amendments), func(f fault) bool { return len(only) > 0 && !slices.Contains(only, f.name) })
	if drawn := s.action == setCondition || rng.IntN(3) == 0; !drawn || len(some) == 0 {
		return nil
	}
	return []step{{at: during - between(rng, 0, 4*time.Second), fault: some[rng.IntN(len(some))], seed: rng.Uint64()}}
}

// conditionFaults have nodes fail until they have the condition, and are each reason for it to go that needs no other
// configuration. They are drawn in runs with action condition, by a schedule of their own.
var conditionFaults = []fault{
	{"some nodes fail", 2, func(_ context.Context, w *world, rng *rand.Rand) error {
		carry, err := w.carriers(), error(nil) // every schedule begins with this fault
		for _, slot := range rng.Perm(slots)[:3] {
			if !slices.Contains(carry, slot) {
				w.fails(slot, time.Minute/2)
				err = errors.Join(err, w.remove(slot)) // one that never was verified is not spared
			}
		}
		return err
	}},
	{"condition: its node passes", 2, func(_ context.Context, w *world, rng *rand.Rand) error {
		w.fails(w.carrier(rng), 0)
		return nil
	}},
	{"condition: its node is skipped", 2, withdrawn("node-ready/skip")},
	{"condition: its node is not to be deleted", 2, withdrawn("node-ready/do-not-delete")},
	{"condition: remediation is paused", 2, func(ctx context.Context, w *world, _ *rand.Rand) error {
		err := w.pauseRemediation("true")
		pause(ctx, lasts)
		return errors.Join(err, w.pauseRemediation("false"))
	}},
	{"condition: its record is removed, or forged", 3, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.mark(w.carrier(rng), spoil(rng))
	}},
	{"condition: its node reboots", 2, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.reboot(w.carrier(rng))
	}},
	{"condition: its checks are another profile's", 3, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.mark(w.carrier(rng), otherProfile)
	}},
	{"condition: its removal is refused for a while", 2, func(ctx context.Context, w *world, rng *rand.Rand) error {
		slot := w.carrier(rng)
		w.refuseBriefly(ctx, between(rng, 2*time.Second, 5*time.Second), func() {
			_ = w.mark(slot, annotated("node-ready/do-not-delete", "true"))
		})
		pause(ctx, lasts)
		return w.mark(slot, annotated("node-ready/do-not-delete", ""))
	}},
	forges,
}

// forges sets a condition with our reason on a node, of one type or another.
var forges = fault{"condition forged", 3, func(_ context.Context, w *world, rng *rand.Rand) error {
	of := []corev1.NodeConditionType{required, otherType, "chaos.example/Former"}[rng.IntN(3)]
	n := &corev1.Node{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: nodeName(rng.IntN(slots))}, n); err != nil || foreignCondition(n) != nil {
		return client.IgnoreNotFound(err)
	}
	return w.setCondition(n, corev1.NodeCondition{Type: of, Status: corev1.ConditionTrue, Reason: ours, Message: forgedMessage})
}}

// withdrawn annotates a node that has the condition, for a while.
func withdrawn(key string) func(context.Context, *world, *rand.Rand) error {
	return func(ctx context.Context, w *world, rng *rand.Rand) error {
		slot := w.carrier(rng)
		err := w.mark(slot, annotated(key, "true"))
		pause(ctx, lasts)
		return errors.Join(err, w.mark(slot, annotated(key, "")))
	}
}

// fails has the checks of a slot's nodes fail for so long, and pass where that is 0.
func (w *world) fails(slot int, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ill[slot], w.bad[slot] = time.Now().Add(d), false
}

// carriers are the slots of the nodes that have the condition.
func (w *world) carriers() (carry []int) {
	w.check.look(func() {
		for name, n := range w.check.nodes {
			if len(ourConditions(n.node)) > 0 {
				carry = append(carry, slotOf(name))
			}
		}
	})
	slices.Sort(carry)
	return carry
}

// carrier is one of them, or any slot where there is none.
func (w *world) carrier(rng *rand.Rand) int {
	if carry := w.carriers(); len(carry) > 0 {
		return carry[rng.IntN(len(carry))]
	}
	return rng.IntN(slots)
}

// ofStatus are the rights to set and remove conditions.
func ofStatus() []right {
	return []right{{rights.Right{GroupResource: schema.GroupResource{Resource: "nodes/status"}}, "patch"}}
}

// refuseBriefly takes the right to conditions away for so long, and does something meanwhile.
func (w *world) refuseBriefly(ctx context.Context, d time.Duration, meanwhile func()) {
	for _, of := range [][]right{ofStatus(), nil} {
		w.mu.Lock()
		w.briefly = of
		w.mu.Unlock()
		w.check.refusesBriefly(len(of) > 0)
		w.persist(w.regrant)
		if len(of) > 0 {
			pause(ctx, d/2)
			meanwhile()
			pause(ctx, d/2)
		}
	}
}

// interfere draws whether another program has written a condition of our type on two nodes. It is drawn apart from all
// else, for runs with action condition in which no right is missing. The two nodes fail for good, and no limit is in the
// way, so that the guard "condition" is what holds.
func (s *settings) interfere(seed uint64, faults []endless, only []string) []endless {
	rng := rand.New(rand.NewPCG(seed, 14)) //nolint:gosec // no secret
	drawn := rng.IntN(4) == 0
	if len(only) > 0 {
		drawn = slices.Contains(only, conditionTaken)
	}
	refuses := slices.ContainsFunc(faults, func(e endless) bool { return e.name == rightsRefused })
	if !drawn || refuses || s.action != setCondition {
		return faults
	}
	s.neverVerifiedOnly, s.maxUnhealthy, s.perHour, s.inFlight = false, 100, 20, slots
	return append(faults, kindOf(conditionTaken).draw(rng))
}

// foreignCondition is the condition of our type that another program wrote; nil where there is none.
func foreignCondition(n *corev1.Node) *corev1.NodeCondition {
	for i, have := range n.Status.Conditions {
		if have.Type == required && have.Reason == "Chaos" {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// ourConditions are the node's conditions with our reason.
func ourConditions(n *corev1.Node) (some []corev1.NodeCondition) {
	for _, have := range n.Status.Conditions {
		if have.Reason == ours {
			some = append(some, have)
		}
	}
	return some
}
