package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/test/world/termination"
)

const (
	// driverReady is the condition that a node's agent sets, with the boot that it is of as its message. It is a
	// prerequisite in two of three seeds.
	driverReady = corev1.NodeConditionType("chaos.example/DriverReady")
	// uninitialized is the taint of a cloud provider that has not labelled the node yet.
	uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	// annotationTaints is another one whenever somebody else has replaced the taints by what he had read before.
	annotationTaints = "chaos.example/taints"
	// labelsLate is how long labels may take to come.
	labelsLate = 10 * time.Second
)

// drawActors draws what the actors of this file need. It is drawn apart from all else.
func (s *settings) drawActors(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 16)) //nolint:gosec // no secret
	s.waits, s.promises = rng.IntN(3) > 0, rng.IntN(2) == 0
}

// awaits adds to the configuration what was drawn.
func (s settings) awaits(full map[string]any) {
	if s.waits {
		full["nodeManagement"].(map[string]any)["prerequisites"] = map[string]any{"conditions": []any{map[string]any{"type": driverReady}}}
	}
	if s.promises {
		full["admission"] = map[string]any{"mode": "policy"}
	}
}

// actorFaults are other programs that write what the controller reads. They are drawn beside all others, by a schedule
// of their own.
var actorFaults = []fault{
	{"taints replaced from a stale read", 5, func(ctx context.Context, w *world, rng *rand.Rand) error {
		return w.replaceTaints(ctx, rng, rng.IntN(slots))
	}},
	{"policy mutates worker pods", 4, func(_ context.Context, w *world, rng *rand.Rand) error {
		w.policy.enforce(time.Now().Add(between(rng, 2*time.Second, 5*time.Second)), time.Time{})
		return nil
	}},
	{"policy mutates nodes", 2, func(_ context.Context, w *world, rng *rand.Rand) error {
		w.policy.enforce(time.Time{}, time.Now().Add(between(rng, time.Second, 4*time.Second)))
		return nil
	}},
	{"node returns within a second", 4, func(ctx context.Context, w *world, rng *rand.Rand) error {
		slot := managed + rng.IntN(slots-managed)
		former, err := w.returns(slot, func(_, _ *corev1.Node) {})
		if err != nil || rng.IntN(2) == 0 {
			return err
		}
		pause(ctx, between(rng, 0, 5*time.Second))
		return w.writeTaints(rng, slot, former.Spec.Taints) // who writes them has not seen the new node
	}},
	{"gate lost to a stale write", 5, func(ctx context.Context, w *world, rng *rand.Rand) error {
		slot, d := managed+rng.IntN(slots-managed), between(rng, 2*time.Second, 5*time.Second)
		w.mu.Lock()
		w.silent[slot] = time.Now().Add(d + time.Second) // no worker ends meanwhile
		w.mu.Unlock()
		former, err := w.returns(slot, func(_, _ *corev1.Node) {})
		if err != nil {
			return err
		}
		pause(ctx, d)
		return w.writeTaints(rng, slot, slices.DeleteFunc(former.Spec.Taints, gates))
	}},
	{"labels come late", 2, func(_ context.Context, w *world, rng *rand.Rand) error {
		slot := managed + rng.IntN(slots-managed)
		initializes := rng.IntN(2) == 0
		w.mu.Lock()
		w.late[slot] = time.Now().Add(labelsLate)
		w.mu.Unlock()
		_, err := w.returns(slot, func(n, _ *corev1.Node) {
			delete(n.Labels, labelProfile)
			if initializes {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
			}
		})
		return err
	}},
	{"node reboots behind its gate", 10, func(ctx context.Context, w *world, rng *rand.Rand) error {
		slot := w.verifiedSlot(rng)
		w.fails(slot, 0)
		err := w.mark(slot, closeGate)
		pause(ctx, between(rng, 0, 500*time.Millisecond))
		w.mu.Lock()
		w.drivers[slot].not = time.Now().Add(between(rng, 2*time.Second, 4500*time.Millisecond))
		w.mu.Unlock()
		return errors.Join(err, w.reboot(slot))
	}},
	{"driver not ready for a while", 3, func(_ context.Context, w *world, rng *rand.Rand) error {
		slot, d := rng.IntN(slots), between(rng, 500*time.Millisecond, 3*time.Second)
		w.mu.Lock()
		w.drivers[slot].at = time.Now().Add(d)
		w.mu.Unlock()
		return w.reportDriver(slot, corev1.ConditionFalse)
	}},
	{"exit codes without a report", 3, func(_ context.Context, w *world, rng *rand.Rand) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wrapped[rng.IntN(slots)] = time.Now().Add(between(rng, 4*time.Second, 10*time.Second))
		return nil
	}},
}

// verifiedSlot is the slot of a node that is verified, or any where none is.
func (w *world) verifiedSlot(rng *rand.Rand) int {
	order := rng.Perm(slots)
	slot := order[0]
	w.check.look(func() {
		for _, s := range order {
			if n := w.check.nodes[nodeName(s)]; n != nil && free(n.node) {
				slot = s
				return
			}
		}
	})
	return slot
}

// replaceTaints replaces a node's taints by those that it had some time ago, as a program does that reads, works, and
// writes without a resourceVersion.
func (w *world) replaceTaints(ctx context.Context, rng *rand.Rand, slot int) error {
	n := &corev1.Node{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: nodeName(slot)}, n); err != nil {
		return err
	}
	pause(ctx, between(rng, 200*time.Millisecond, 4*time.Second))
	return w.writeTaints(rng, slot, n.Spec.Taints)
}

// writeTaints replaces a node's taints by others. Those of rules stay: nobody removes one that is added without its
// owner.
func (w *world) writeTaints(rng *rand.Rand, slot int, taints []corev1.Taint) error {
	number := fmt.Sprint(rng.Uint64())
	return w.mark(slot, func(n *corev1.Node) error {
		kept := slices.DeleteFunc(slices.Clone(taints), isRules)
		for _, t := range n.Spec.Taints {
			if isRules(t) {
				kept = append(kept, t)
			}
		}
		n.Spec.Taints, n.Annotations[annotationTaints] = kept, number
		return nil
	})
}

// returns replaces a node by another one of its name, at once. It returns the former one.
func (w *world) returns(slot int, change func(fresh, former *corev1.Node)) (former *corev1.Node, err error) {
	former = &corev1.Node{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: nodeName(slot)}, former); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.absent[slot] = time.Now().Add(time.Second) // nobody else lets one join
	w.mu.Unlock()
	if err := w.remove(slot); err != nil {
		return nil, err
	}
	return former, w.join(slot, func(fresh *corev1.Node) { change(fresh, former) })
}

// label gives a node the labels that came late, and ends its initialization.
func (w *world) label(slot int, n *corev1.Node) {
	w.mu.Lock()
	late, due := !w.late[slot].IsZero(), w.calm || !time.Now().Before(w.late[slot])
	w.mu.Unlock()
	if !due || !late && !slices.ContainsFunc(n.Spec.Taints, isUninitialized) {
		return
	}
	err := w.mark(slot, func(n *corev1.Node) error {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, isUninitialized)
		if late {
			n.Labels[labelProfile] = "b"
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && late {
		w.late[slot] = time.Time{}
	}
}

func isRules(t corev1.Taint) bool { return strings.HasPrefix(t.Key, rulePrefix) }

func isUninitialized(t corev1.Taint) bool { return t.Key == uninitialized }

// driver is the agent of a node.
type driver struct {
	of      string    // its node's UID and boot
	at, not time.Time // it reports at the later one, at the earliest
}

// drive has the agent of a node report, once in every boot.
func (w *world) drive(slot int, n *corev1.Node) {
	of, after := string(n.UID)+" "+boot(n), w.within(200*time.Millisecond, 2500*time.Millisecond)
	w.mu.Lock()
	d := &w.drivers[slot]
	if d.of != of {
		d.of, d.at = of, time.Now().Add(after)
	}
	due := !time.Now().Before(d.at) && !time.Now().Before(d.not) && !w.dead[slot] && !time.Now().Before(w.silent[slot])
	w.mu.Unlock()
	if !w.settings.waits || !due || readyDriver(n) == "" {
		return
	}
	_ = w.reportDriver(slot, corev1.ConditionTrue)
}

// reportDriver writes what the agent of a node reports. It is tied to the node that was read, which names the boot.
func (w *world) reportDriver(slot int, status corev1.ConditionStatus) error {
	n := &corev1.Node{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: nodeName(slot)}, n); err != nil || !w.settings.waits {
		return client.IgnoreNotFound(err)
	}
	at := w.kubeletTime(n.Name)
	c, err := json.Marshal([]corev1.NodeCondition{{Type: driverReady, Status: status, Reason: "Chaos", Message: boot(n),
		LastTransitionTime: at, LastHeartbeatTime: at}})
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q},"status":{"conditions":%s}}`, n.UID, n.ResourceVersion, c)
	return errors.Join(err, w.api.Status().Patch(w.ctx, n, client.RawPatch("application/strategic-merge-patch+json", patch)))
}

// readyDriver says why the agent of a node has not reported in this boot that it is ready; empty if it has.
func readyDriver(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type != driverReady:
		case c.Status != corev1.ConditionTrue:
			return fmt.Sprintf("%s is %s", driverReady, c.Status)
		case c.Message != boot(n):
			return fmt.Sprintf("%s is of boot %s", driverReady, c.Message)
		default:
			return ""
		}
	}
	return fmt.Sprintf("%s is missing", driverReady)
}

// noReports are what a container leaves that ends with a code of its own and is no worker, or that of another node.
var noReports = []func(node string, code int) string{
	func(string, int) string { return "" },
	func(string, int) string { return "exec /kube-node-ready-worker: exec format error" },
	func(node string, code int) string { return termination.Message(node+"-other", code) },
	func(node string, code int) string {
		whole := termination.Message(node, code)
		return whole[:len(whole)/2]
	},
	func(node string, _ int) string { return termination.Message(node, 0) },
}
