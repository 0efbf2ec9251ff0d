//go:build repair

package repair

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// toleration is how long the condition has to be there before either repairer acts.
const toleration = 10 * time.Second

// quiet is longer than a repairer takes to act: MachineHealthCheck looks every 15 s at most.
const quiet = toleration + 25*time.Second

func TestRepairersActOnTheCondition(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*world) *fleet{"Cluster API": clusterAPI, "Karpenter": karpenter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(begin(t))
			owners := f.await()
			nodes := slices.Sorted(maps.Keys(owners))

			// One node has the condition with another status, and from one it is taken back within the toleration.
			f.set(nodes[0], corev1.ConditionFalse)
			f.set(nodes[1], corev1.ConditionTrue)
			time.Sleep(time.Second)
			f.set(nodes[1], corev1.ConditionFalse)
			f.throughout(quiet, "no condition is True, and nothing is replaced", f.unchanged(owners))

			f.set(nodes[0], corev1.ConditionTrue)
			owners = f.replaced(owners, nodes[0])

			// Two of five are more than either repairer's own limit.
			nodes = slices.Sorted(maps.Keys(owners))
			since := time.Now()
			f.set(nodes[0], corev1.ConditionTrue)
			f.set(nodes[1], corev1.ConditionTrue)
			f.throughout(quiet, "too many nodes have the condition, and nothing is replaced", f.unchanged(owners))
			f.eventually("an event says so", func() error { return f.event(f.limit, since) })
		})
	}
}
