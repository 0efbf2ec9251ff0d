package rules

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// limited serves one rule with rules.maxClosedPercent on nodes that it has released before.
func limited(t *testing.T, percent int32, nodes int) *fixture {
	f := serve(t, agentRule(0))
	f.Config.MaxClosedPercent = percent
	for i := range nodes {
		f.nodes[fmt.Sprintf("n%d", i)] = releasedNode(fmt.Sprintf("n%d", i), corev1.ConditionTrue)
	}
	return f
}

func releasedNode(name string, agent corev1.ConditionStatus) *corev1.Node {
	n := newcomer(name, agent)
	n.Annotations = map[string]string{marks.AnnotationReleased: `["uid-r0"]`}
	return n
}

func newcomer(name string, agent corev1.ConditionStatus) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Labels: map[string]string{"role": "worker"}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: "agent/r0", Status: agent}}
	return n
}

// closed is the node as the API server has it once the rule's taint was added.
func closed(n *corev1.Node) *corev1.Node {
	n = n.DeepCopy()
	n.Spec.Taints = []corev1.Taint{{Key: "readiness.k8s.io/r0", Effect: corev1.TaintEffectNoSchedule}}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[marks.AnnotationRules] = `{"uid-r0":"readiness.k8s.io/r0:NoSchedule"}`
	return n
}

// fail makes the rule's condition fail on all nodes at once, and returns the nodes that are closed.
func (f *fixture) fail() (closing []string) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for name := range f.nodes {
		all.Go(func() {
			plan, done := f.Plan(releasedNode(name, corev1.ConditionFalse))
			defer done()
			if len(plan.Change.Add) > 0 {
				mu.Lock()
				defer mu.Unlock()
				closing = append(closing, name)
			}
		})
	}
	all.Wait()
	return closing
}

// No more nodes than the limit are closed again, however many nodes are decided about at the same time. This holds
// whether or not the cache shows the closings, and also after the rules have changed and everything is counted again.
func TestLimitOfClosingsHoldsForAllNodesTogether(t *testing.T) {
	f := limited(t, 10, 105)
	first := f.fail()
	if len(first) != 10 {
		t.Fatalf("%d of 105 nodes are closed, want 10", len(first))
	}
	f.tallies = nil
	if again := f.fail(); len(again) != 10 || !sameNodes(first, again) {
		t.Errorf("closed are %v, and then %v", first, again)
	}
	for _, name := range first[:4] {
		f.nodes[name] = closed(releasedNode(name, corev1.ConditionFalse))
		f.show(t, f.nodes[name])
	}
	if again := f.fail(); len(again) > 10 || slices.ContainsFunc(again, func(n string) bool { return !slices.Contains(first, n) }) {
		t.Errorf("closed are %v, and then %v", first, again)
	}
}

func sameNodes(a, b []string) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// When a closed node recovers or is deleted, another node may be closed and is enqueued.
func TestClosingsAreGivenBack(t *testing.T) {
	f := limited(t, 10, 40)
	first := f.fail()
	if len(first) != 4 {
		t.Fatalf("closed are %v", first)
	}
	for _, name := range first {
		f.nodes[name] = closed(releasedNode(name, corev1.ConditionFalse))
		f.show(t, f.nodes[name])
	}
	f.woken = nil
	f.show(t, releasedNode(first[0], corev1.ConditionTrue))
	if len(f.woken) != 1 || slices.Contains(first, f.woken[0]) {
		t.Fatalf("woken are %v", f.woken)
	}
	if plan, done := f.Plan(releasedNode(f.woken[0], corev1.ConditionFalse)); len(plan.Change.Add) != 1 {
		t.Error("the node that was woken is not closed")
	} else {
		f.RecordFailure(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.woken[0]}}, plan, errors.New("frozen"))
		done()
	}
	for i, want := range []int{0, 1} { // 3 closed of 39, which is the limit, and 2 of 38
		f.woken = nil
		delete(f.nodes, first[i+1])
		if f.ForgetNode(first[i+1]); len(f.woken) != want {
			t.Errorf("woken are %v, want %d", f.woken, want)
		}
	}
}

// A node that the rule has not released is gated whatever the limit is, and counts in neither number.
func TestNewcomersAreGatedWhateverTheLimit(t *testing.T) {
	f := limited(t, 10, 20)
	if first := f.fail(); len(first) != 2 {
		t.Fatalf("closed are %v", first)
	}
	for i := range 30 {
		n := newcomer(fmt.Sprintf("new%d", i), corev1.ConditionFalse)
		f.nodes[n.Name] = n
		plan, done := f.Plan(n)
		done()
		if len(plan.Change.Add) != 1 {
			t.Fatalf("%s is not gated", n.Name)
		}
		f.nodes[n.Name] = closed(n)
		f.show(t, f.nodes[n.Name])
	}
	tally, err := f.tally(t.Context(), &f.all().rules[0])
	if err != nil || tally.ReleasedBefore != 20 || tally.ClosedAgain != 0 || len(tally.Held) < 30 {
		t.Errorf("%+v, %v", tally, err)
	}
}

// A successor's cache may not show yet which nodes the previous leader closed. The successor still counts them, because
// it first reads the nodes from the API server.
func TestClosingsOfTheLeaderOfBeforeCount(t *testing.T) {
	f := limited(t, 10, 50)
	live := cached{}
	for name := range f.nodes {
		live[name] = releasedNode(name, corev1.ConditionFalse)
	}
	was := []string{"n1", "n2", "n3", "n4", "n5"}
	for _, name := range was {
		live[name] = closed(live[name])
	}
	if err := f.recallClosings(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	if now := f.fail(); len(now) != 5 || !sameNodes(now, was) {
		t.Errorf("closed are %v, and were %v", now, was)
	}
}

// A rule that releases a node records the release in the same patch. For a node that it never held, it records the
// release in a separate patch. Without the limit, it records nothing.
func TestReleasesAreWrittenDown(t *testing.T) {
	for percent, want := range map[int32][]string{0: nil, 10: {"uid-r0"}} {
		f := limited(t, percent, 0)
		for _, n := range []*corev1.Node{newcomer("never", corev1.ConditionTrue), closed(newcomer("held", corev1.ConditionTrue))} {
			plan, done := f.Plan(n)
			done()
			if !slices.Equal(plan.Change.Released, want) || len(plan.Change.Remove) != len(n.Spec.Taints) {
				t.Errorf("limit %d, %s: %+v", percent, n.Name, plan.Change)
			}
		}
	}
	f := limited(t, 10, 0)
	n := releasedNode("stranger", corev1.ConditionTrue)
	n.Annotations[marks.AnnotationReleased] = `["uid-of-none"]`
	if plan, _ := f.Plan(n); !slices.Equal(plan.Change.Released, []string{"uid-r0"}) {
		t.Errorf("%v", plan.Change.Released)
	}
}

// A kubelet may write the annotation. That removes no taint, and opens no gate while the limit is not reached.
func TestForgedReleaseOpensNoGate(t *testing.T) {
	f := limited(t, 10, 0)
	forged := releasedNode("forged", corev1.ConditionFalse)
	if plan, done := f.Plan(forged); len(plan.Change.Add) != 1 {
		t.Errorf("it is left open: %+v", plan)
	} else {
		done()
	}
	tainted := closed(releasedNode("tainted", corev1.ConditionFalse))
	if plan, _ := f.Plan(tainted); len(plan.Change.Remove) > 0 || plan.Evaluations[0].State != rule.Held {
		t.Errorf("%+v", plan)
	}
}

func TestClosingLimit(t *testing.T) {
	for _, c := range []struct{ before, percent, want int }{{0, 10, 1}, {5, 10, 1}, {19, 10, 1}, {20, 10, 2}, {105, 10, 10}, {7, 100, 7}} {
		if got := rule.ClosingLimit(c.before, int32(c.percent)); got != c.want {
			t.Errorf("%d%% of %d: %d, want %d", c.percent, c.before, got, c.want)
		}
	}
}
