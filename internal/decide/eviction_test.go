package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

var (
	execute  = marks.Taint{Key: "k", Value: "true", Effect: corev1.TaintEffectNoExecute}
	standIn  = marks.Taint{Key: "k", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	schedule = marks.Taint{Key: "other", Effect: corev1.TaintEffectNoSchedule}
	soft     = marks.Taint{Key: "k", Effect: corev1.TaintEffectPreferNoSchedule}
)

// executing gates the node's profile by a NoExecute taint and another one.
func executing(in *Input) { in.Profile.Taints = []marks.Taint{execute, schedule} }

func gatedBy(taints ...marks.Taint) func(*Input) {
	return func(in *Input) { in.Node.Gated, in.Node.GatedBy = true, taints }
}

func TestANoExecuteTaintEvictsNobody(t *testing.T) {
	failing := func(change ...func(*Input)) Input {
		return verified(append([]func(*Input){unlabelled, executing, failedOnce, with(pod(3, openGate, ended(attempt.Failed), resultSeen(failedAt)))}, change...)...)
	}
	passing := []workerpod.Observation{probe("m0", ended(attempt.Passed))}
	busy := world{workloads: Workloads{Names: []string{"a/b"}}, probes: passing}
	for name, tc := range map[string]struct {
		in     Input
		world  world
		closes []marks.Taint
		asks   bool
		says   string // of the events
	}{
		"it runs none":              {failing(), world{probes: passing}, []marks.Taint{execute, schedule}, true, ""},
		"it runs some":              {failing(), busy, []marks.Taint{schedule, standIn}, true, "taint k was added with effect NoSchedule instead of NoExecute: the node runs ordinary pods: a/b"},
		"nobody knows":              {failing(), world{probes: passing, workloads: Workloads{Problem: "its pods cannot be listed"}}, []marks.Taint{schedule, standIn}, true, "its pods cannot be listed"},
		"it is there already":       {failing(gatedBy(execute), with(pod(3, ended(attempt.Failed), resultSeen(failedAt)))), busy, []marks.Taint{schedule}, false, ""},
		"so is what stands in":      {failing(gatedBy(standIn), with(pod(3, ended(attempt.Failed), resultSeen(failedAt)))), busy, []marks.Taint{schedule}, false, ""},
		"no taint is NoExecute":     {failing(func(in *Input) { in.Profile.Taints = []marks.Taint{schedule} }), busy, []marks.Taint{schedule}, false, ""},
		"closed before it is tried": {verified(unlabelled, executing, func(in *Input) { in.Config.NodeManagement.Reverify.Taint = true }), busy, []marks.Taint{schedule, standIn}, true, "ordinary pods: a/b"},
		"held":                      {exhausted(executing, optOut, ungated), busy, []marks.Taint{schedule, standIn}, true, "ordinary pods: a/b"},
		"a soft one of its key":     {failing(gatedBy(soft)), busy, []marks.Taint{schedule, standIn}, true, "ordinary pods: a/b"},
	} {
		plan, asked := ask(t, tc.in, tc.world)
		if plan.Step != StepRecord || plan.Change.Gate != gateClose || !slices.Equal(plan.Change.GateTaints, tc.closes) || slices.Contains(asked, NeedOccupants) != tc.asks {
			t.Errorf("%s: closes %v, asked for %v, want %v (%+v)", name, plan.Change.GateTaints, asked, tc.closes, plan)
		}
		told := ""
		for _, e := range plan.Events {
			told += e.Message
		}
		if !strings.Contains(told, tc.says) || tc.says == "" && strings.Contains(told, "NoExecute") {
			t.Errorf("%s: says %q, want %q", name, told, tc.says)
		}
	}
	if plan, asked := ask(t, verified(unlabelled, executing, with(pod(2, openGate, ended(attempt.Passed)))), busy); plan.Step != StepRecord || len(asked) > 0 {
		t.Errorf("a pass asked for %v: %+v", asked, plan)
	}
}

// A taint that keeps no pod off takes the place of no other taint with its key: the gate closes by one write, whatever
// closes it. Otherwise each look would write, and no attempt would start.
func TestSoftTaintReplacesNoOther(t *testing.T) {
	both := func(in *Input) { in.Profile.Taints = []marks.Taint{soft, execute} }
	for name, in := range map[string]Input{
		"verified again":           verified(both, gatedBy(soft), func(in *Input) { in.Config.NodeManagement.Reverify.Taint = true }),
		"its label is gone, too":   verified(both, gatedBy(soft), unlabelled, func(in *Input) { in.Config.NodeManagement.Reverify.Taint = true }),
		"held":                     exhausted(both, gatedBy(soft), optOut),
		"held before":              exhausted(both, gatedBy(soft), optOut, heldBy(GuardDoNotDelete)),
		"asks for repair":          exhausted(both, gatedBy(soft), asksForRepair),
		"deleted":                  exhausted(both, gatedBy(soft)),
		"fails by its own fault":   verified(both, gatedBy(soft), failedOnce, with(pod(3, openGate, ended(attempt.Failed), resultSeen(failedAt)))),
		"the strict one elsewhere": exhausted(gatedBy(soft), optOut, func(in *Input) { in.Profile.Taints = []marks.Taint{soft, execute, schedule} }),
	} {
		for _, busy := range []bool{false, true} {
			w := pool()
			w.probes = []workerpod.Observation{probe("m0", ended(attempt.Passed))}
			closes := execute
			if busy {
				w.workloads.Names, closes = []string{"a/b"}, standIn
			}
			plan, _ := ask(t, in, w)
			if plan.Change.Gate != gateClose || !slices.Contains(plan.Change.GateTaints, closes) {
				t.Errorf("%s, busy %t: %q closes by %v, want %v", name, busy, plan.Step, plan.Change.GateTaints, closes)
				continue
			}
			settled := after(in, plan)
			settled.Node.GatedBy, settled.Pods = append(slices.Clone(in.Node.GatedBy), closes), nil
			if plan, _ = ask(t, settled, w); plan.Change.Gate == gateClose && plan.Step != StepDelete {
				t.Errorf("%s, busy %t: closes again by %v", name, busy, plan.Change.GateTaints)
			}
		}
	}
}

// A list of the node's pods from an earlier reconcile may hold its deletion. It does not show which pods a taint would
// evict now.
func TestAStaleListClosesNoGate(t *testing.T) {
	w := pool(func(w *world) { w.workloads.Names = []string{"a/b"} })
	in, ev := exhausted(executing, ungated, heldBy(GuardDryRun)), Evidence{}
	loaders := w.loaders(&in, &ev, func(Plan) {})
	loaders[NeedWorkloads] = Loader(&ev.Workloads, func() (Workloads, error) {
		return Workloads{Names: []string{"a/b"}, Stale: true}, nil
	})
	loaders[NeedOccupants] = func(Plan) error { return ErrStop }
	if plan, err := Resolve(&in, &ev, func() time.Time { return now }, loaders); err != nil || plan.Need != NeedOccupants {
		t.Errorf("the pods were not listed again: %v, %+v", err, plan)
	}
}
