package chaos

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rights"
)

func says(status corev1.ConditionStatus, reason, message string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		others := slices.DeleteFunc(slices.Clone(n.Status.Conditions), func(c corev1.NodeCondition) bool { return c.Type == "node-ready/Verified" })
		ours := corev1.NodeCondition{Type: "node-ready/Verified", Status: status, Reason: reason, Message: message}
		n.Status.Conditions = slices.Concat(others, []corev1.NodeCondition{ours})
	}
}

// refused is the fault of one right that is refused.
func refused(verb, resource, where string) endless {
	r := rights.Right{Namespace: where, GroupResource: schema.GroupResource{Resource: resource}}
	return endless{endlessKind: kindOf(rightsRefused), rights: []right{{r, verb}}}
}

// A node whose deletion is decided and forbidden waits for that right, and says so.
func TestSilenceWhileTheDeletionIsForbidden(t *testing.T) {
	stuck := endless{endlessKind: kindOf(containerStuck)}
	stuck.slots[1] = true
	forbidden := refused("delete", "nodeclaims", "")
	for name, c := range map[string]struct {
		faults   []endless
		intended bool
		spoken   bool
	}{
		"forbidden":                  {[]endless{stuck, forbidden}, true, true},
		"no deletion is intended":    {[]endless{stuck, forbidden}, false, false},
		"every right is granted":     {[]endless{stuck}, true, false},
		"no other fault concerns it": {[]endless{forbidden}, true, true},
		"nor is a deletion intended": {[]endless{forbidden}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			tell := &tale{c: newChecker(settings{}), have: map[string]runtime.Object{}}
			for _, e := range c.faults {
				tell.c.begin(e)
			}
			tell.c.calm = time.Unix(1000, 0)
			tell.node(others(func(n *corev1.Node) { n.Name = "node-1" }))
			tell.node(records(func(r *marks.Record) {
				if c.intended {
					r.Deletion = &marks.Deletion{Kind: "NodeClaim", Name: "c"}
				}
			}))
			tell.node(says(corev1.ConditionFalse, "RetriesExhausted", `remediation failed: nodeclaims "c" is forbidden`))
			seen := tell.c.nodes["node-1"]
			if got := seen.said.After(tell.c.calm); got != c.spoken {
				t.Errorf("it counts as said: %t, want %t", got, c.spoken)
			}
		})
	}
}

// A node that a fault concerns has to say why it waits, and no other one is excused.
func TestSilence(t *testing.T) {
	image := endless{endlessKind: kindOf(imageMissing)}
	image.slots[1] = true
	why := says(corev1.ConditionUnknown, "WorkerInconclusive", "image x: ImagePullBackOff")
	other := says(corev1.ConditionUnknown, "Verifying", "")
	passes := others(func(n *corev1.Node) { releases(n); says(corev1.ConditionTrue, "ChecksPassed", "")(n) })
	deletes := refused("delete", "nodeclaims", "")
	makes := refused("create", "pods", namespace)
	serves := refused("list", "leases", "")
	const verify, speak = "node-1 is not verified", "node-1 does not say why"
	for name, c := range map[string]struct {
		fault  endless
		node   string
		change []func(*corev1.Node) // before no other fault is left
		later  []func(*corev1.Node)
		want   string
	}{
		"not concerned, verified":     {fault: image, node: "node-2", later: []func(*corev1.Node){passes}},
		"not concerned, not verified": {image, "node-2", nil, []func(*corev1.Node){why}, "node-2 is not verified"},
		"silent":                      {fault: image, node: "node-1", want: speak},
		"speaks of something else":    {image, "node-1", nil, []func(*corev1.Node){other}, speak},
		"says it":                     {fault: image, node: "node-1", later: []func(*corev1.Node){why}},
		"says it still":               {fault: image, node: "node-1", change: []func(*corev1.Node){why}},
		"said it before":              {image, "node-1", []func(*corev1.Node){why}, []func(*corev1.Node){other}, speak},
		"said it since":               {fault: image, node: "node-1", later: []func(*corev1.Node){why, other}},
		"verified all along":          {fault: image, node: "node-1", change: []func(*corev1.Node){passes}},
		"a right for deletions only":  {fault: deletes, node: "node-1", want: verify},
		"a right to see nodes":        {fault: refused("watch", "nodes", ""), node: "node-1"},
		"a right to make pods":        {fault: makes, node: "node-1", want: speak},
		"a right for rules, no rule":  {fault: serves, node: "node-1", want: verify},
	} {
		t.Run(name, func(t *testing.T) {
			tell := &tale{c: newChecker(settings{}), have: map[string]runtime.Object{}}
			tell.c.begin(c.fault)
			node := func(change func(*corev1.Node)) {
				tell.node(func(n *corev1.Node) { n.Name = c.node; change(n) })
			}
			node(others(func(*corev1.Node) {}))
			for _, change := range c.change {
				node(change)
			}
			tell.c.calm = time.Unix(1000+tell.revision, 1)
			for _, change := range c.later {
				node(change)
			}
			left := slices.DeleteFunc(tell.c.unsettled(time.Now()), func(what string) bool {
				return strings.HasSuffix(what, "is not there")
			})
			if c.want == "" && len(left) > 0 || c.want != "" && (len(left) == 0 || !strings.HasPrefix(left[0], c.want)) {
				t.Errorf("it says %q, want %q", left, c.want)
			}
		})
	}
}

func TestWritesAreBounded(t *testing.T) {
	if err := expensive(costs(2, watched), 2, watched); err != nil {
		t.Error(err)
	}
	if err := expensive(costs(2, watched)+1, 2, watched); err == nil {
		t.Error("more is nothing to it")
	}
	if err := expensive(restCost+1, 0, watched); err == nil {
		t.Error("writes for no node are nothing to it")
	}
}

// A seed draws the same each time, and a hundred of them draw all there is: every kind, and every right of the chart
// that may be drawn.
func TestEndlessFaultsAreDrawn(t *testing.T) {
	all, kinds, refused := eachRight(controllersRights()), map[string]int{}, map[string]int{}
	for seed := range uint64(100) {
		drawn, _ := drawEndless(seed, all, nil)
		if again, _ := drawEndless(seed, all, nil); !reflect.DeepEqual(describeAll(drawn), describeAll(again)) {
			t.Fatalf("seed %d draws %v, and then %v", seed, drawn, again)
		}
		for _, e := range drawn {
			kinds[e.name]++
			for _, r := range e.rights {
				refused[r.String()]++
			}
		}
	}
	for _, k := range endlessKinds {
		if kinds[k.name] == 0 && k.name != conditionTaken { // which interfere draws
			t.Errorf("%s is never drawn", k.name)
		}
	}
	t.Logf("%v\n%v of %d rights", kinds, refused, len(all))
	if len(refused) < len(all)/2 {
		t.Errorf("%d of %d rights are drawn", len(refused), len(all))
	}
}

// In some runs with action condition another program has written one of its type, and no limit is in the way.
func TestConditionIsTakenInSomeRuns(t *testing.T) {
	var taken []uint64
	for seed := range uint64(100) {
		var s settings
		s.drawRepair(seed)
		drawn, _ := drawEndless(seed, eachRight(controllersRights()), nil)
		if faults := s.interfere(seed, drawn, nil); len(faults) > len(drawn) {
			taken = append(taken, seed)
			if s.action != setCondition || s.neverVerifiedOnly || s.maxUnhealthy < 100 {
				t.Errorf("seed %d: %+v", seed, s)
			}
		}
	}
	t.Log(taken)
	if len(taken) < 5 {
		t.Errorf("seeds %v", taken)
	}
}

// A seed draws the same each time, and a hundred of them draw each reason for the condition to go, on nodes that have it.
func TestReasonsAreDrawn(t *testing.T) {
	drawn, clear := map[string]int{}, []uint64{}
	for seed := range uint64(100) {
		var s settings
		if s.drawRepair(seed); s.action == deleteOwner {
			continue
		}
		if s.clear {
			clear = append(clear, seed)
		}
		steps := schedule(seed, s, disturbed, nil)
		for i, again := range schedule(seed, s, disturbed, nil) {
			if again.at != steps[i].at || again.fault.name != steps[i].fault.name || again.seed != steps[i].seed {
				t.Fatalf("seed %d draws %v, and then %v", seed, steps[i], again)
			}
			drawn[again.fault.name]++
		}
	}
	for _, f := range slices.Concat(amendments, conditionFaults) {
		t.Logf("%s: %d times", f.name, drawn[f.name])
		if drawn[f.name] < 3 {
			t.Errorf("%s is drawn %d times", f.name, drawn[f.name])
		}
	}
	t.Logf("without other faults of controllers and cluster: %v", clear)
}

func describeAll(drawn []endless) (all []string) {
	for _, e := range drawn {
		all = append(all, e.String())
	}
	return all
}

// runs shows the worker's container as running.
func runs(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }

// passes lets time go by: each change is a second later.
func (t *tale) passes(d time.Duration) {
	for range int(d / time.Second) {
		t.revision++
	}
}

// A node is blamed for a stuck worker only where one is, long enough, and such a worker's pod stays.
func TestStuckWorkers(t *testing.T) {
	blamed := records(func(r *marks.Record) {
		r.Sequence, r.LastOutcome, r.Attempts, r.LastReason = r.Sequence+1, attempt.Failed, 2, workerStuck
	})
	begins := func(tell *tale) {
		e := endless{endlessKind: kindOf(containerStuck), began: time.Unix(1, 0)}
		e.slots[1] = true
		tell.c.begin(e)
		tell.node(others(func(n *corev1.Node) { n.Name = "node-1" }))
		tell.worker(1, nil, runs)
		tell.node(comes(attempt.Failed, 1))
	}
	for name, c := range map[string]struct {
		tell func(*tale)
		want string
	}{
		"blamed for one that does not end": {func(t *tale) {
			t.worker(1, nil, runs, ends)
			t.passes(endsWithin)
			t.node(blamed)
		}, ""},
		"blamed early": {func(t *tale) { t.worker(1, nil, runs, ends); t.node(blamed) }, "recorded as stuck, and none is"},
		"blamed for one that ended": {func(t *tale) {
			t.worker(1, nil, runs, ends)
			t.passes(endsWithin)
			t.worker(1, ill, ends)
			t.node(blamed)
		}, "recorded as stuck, and none is"},
		"its pod is deleted without grace": {func(t *tale) {
			t.worker(1, nil, runs, ends)
			t.tell("pods/"+namespace+"/w1", nil)
		}, "its container cannot have ended"},
	} {
		story := &tale{c: newChecker(settings{maxRetries: 2, timeout: time.Second}), have: map[string]runtime.Object{}}
		begins(story)
		before := len(story.c.violations())
		c.tell(story)
		faults := strings.Join(story.c.violations()[before:], "\n")
		if c.want == "" && faults != "" || !strings.Contains(faults, c.want) {
			t.Errorf("%s: %q, want %q", name, faults, c.want)
		}
	}
}
