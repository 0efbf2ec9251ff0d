package rules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// cached is a cache of nodes.
type cached map[string]*corev1.Node

func (c cached) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	panic("nobody reads a single node")
}

func (c cached) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		list.(*corev1.NodeList).Items = append(list.(*corev1.NodeList).Items, *c[name])
	}
	return nil
}

// silent drops events.
type silent struct{}

func (silent) Emit(*corev1.Node, time.Time, decide.Event)                    {}
func (silent) EmitRule(*v1alpha1.NodeReadinessRule, time.Time, decide.Event) {}

// fixture serves rules on a cache of nodes, and records what is enqueued.
type fixture struct {
	*Rules
	nodes        cached
	woken, ruled []string
}

func serve(t *testing.T, rules ...*v1alpha1.NodeReadinessRule) *fixture {
	f := &fixture{nodes: cached{}}
	f.Rules = &Rules{Nodes: f.nodes, Now: time.Now, Counters: NewCounters(), Events: silent{},
		EnqueueNode: func(name string) { f.woken = append(f.woken, name) }, EnqueueRule: func(name string) { f.ruled = append(f.ruled, name) }}
	f.serving = serving{definition: definitionPresent}
	if err := f.Replace(t.Context(), rules); err != nil {
		t.Fatal(err)
	}
	f.woken, f.ruled = nil, nil
	return f
}

// show plays a watch event of a node. The API server does not allow the node's taints to be changed, or this is a dry
// run.
func (f *fixture) show(t *testing.T, n *corev1.Node) {
	t.Helper()
	f.ObserveNode(f.nodes[n.Name], n)
	f.nodes[n.Name] = n
	plan, done := f.Plan(n)
	switch {
	case plan.Change.Empty():
	case f.DryRun:
		f.RecordWrite(n, plan)
	default:
		f.RecordFailure(n, plan, errors.New("frozen"))
	}
	done()
}

func agentRule(i int) *v1alpha1.NodeReadinessRule {
	name := fmt.Sprintf("r%d", i)
	r := &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", Finalizers: []string{v1alpha1.Finalizer}}}
	r.Spec = v1alpha1.NodeReadinessRuleSpec{
		Conditions:      []v1alpha1.ConditionRequirement{{Type: "agent/" + name, RequiredStatus: corev1.ConditionTrue}},
		EnforcementMode: v1alpha1.ModeContinuous, DryRun: i == 2,
		Taint:        corev1.Taint{Key: "readiness.k8s.io/" + name, Effect: corev1.TaintEffectNoSchedule},
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"role": "worker"}},
	}
	return r
}

// Whatever happens to nodes, the tally that is updated with each decision equals the tally that is computed from all
// nodes. In a dry run, that includes nodes that a rule would change.
func TestTallyFollowsNodes(t *testing.T) {
	for _, dryRun := range []bool{false, true} {
		t.Run(fmt.Sprint("dry run ", dryRun), func(t *testing.T) { followNodes(t, dryRun) })
	}
}

func followNodes(t *testing.T, dryRun bool) {
	f := serve(t, agentRule(0), agentRule(1), agentRule(2))
	f.DryRun = dryRun
	if _, err := f.Tallies(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 5))
	for i := range 2000 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", r.IntN(7)), UID: "u", Labels: map[string]string{}}}
		if r.IntN(4) > 0 {
			n.Labels["role"] = "worker"
		}
		for c := range 3 {
			name := fmt.Sprintf("r%d", c)
			if r.IntN(2) == 0 {
				status := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[r.IntN(2)]
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType("agent/" + name), Status: status})
			}
			if r.IntN(2) == 0 {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "readiness.k8s.io/" + name, Effect: corev1.TaintEffectNoSchedule})
			}
		}
		if r.IntN(5) == 0 {
			delete(f.nodes, n.Name)
			f.ForgetNode(n.Name)
		} else {
			f.show(t, n)
		}
		for _, c := range f.all().rules {
			followed, err := f.tally(t.Context(), &c)
			if err != nil {
				t.Fatal(err)
			}
			kept := f.tallies
			f.tallies = nil
			made, _ := f.tally(t.Context(), &c)
			f.tallies = kept
			if len(followed.Held) == 0 {
				followed.Held = nil
			}
			if len(followed.Blocked) == 0 {
				followed.Blocked = nil
			}
			if !reflect.DeepEqual(followed, made) {
				t.Fatalf("step %d, rule %s: followed %+v, made anew %+v", i, c.Name, followed, made)
			}
		}
	}
}

// A change of a node enqueues only the rules for which it changes something.
func TestChangeOfANodeWakesItsRules(t *testing.T) {
	f := serve(t, agentRule(0), agentRule(1))
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{"role": "worker"}}}
	n.Spec.Taints = []corev1.Taint{{Key: "readiness.k8s.io/r0", Effect: corev1.TaintEffectNoSchedule}, {Key: "readiness.k8s.io/r1", Effect: corev1.TaintEffectNoSchedule}}
	f.show(t, n)
	if _, err := f.Tallies(t.Context()); err != nil {
		t.Fatal(err)
	}
	n = n.DeepCopy()
	n.Status.Conditions = []corev1.NodeCondition{{Type: "agent/r1", Status: corev1.ConditionTrue}}
	n.Spec.Taints = n.Spec.Taints[:1]
	f.ruled = nil
	if f.show(t, n); !slices.Contains(f.ruled, "r1") || slices.Contains(f.ruled, "r0") {
		t.Errorf("woken: %v", f.ruled)
	}
	f.ruled = nil
	if f.show(t, n.DeepCopy()); len(f.ruled) > 0 {
		t.Errorf("nothing changed, and woken is %v", f.ruled)
	}
}

// A status that this controller writes causes an event, which enqueues neither nodes nor the rule. A status that
// another controller writes enqueues the rule. A change of the rule's requirements enqueues the nodes that it selects,
// and all rules.
func TestOwnStatusWakesNothing(t *testing.T) {
	f := serve(t, agentRule(0), agentRule(1))
	for i := range 10 {
		f.show(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), UID: "u", Labels: map[string]string{"role": "worker"}}})
	}
	write := func(manager, subresource string, change func(*v1alpha1.NodeReadinessRule)) {
		t.Helper()
		f.woken, f.ruled = nil, nil
		now := f.all().objects["r0"].DeepCopy()
		now.ResourceVersion += "1"
		now.ManagedFields = append(now.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource,
			Time: &metav1.Time{Time: time.Unix(int64(1000+len(now.ManagedFields)), 0)}})
		change(now)
		if err := f.Replace(t.Context(), []*v1alpha1.NodeReadinessRule{now, f.all().objects["r1"]}); err != nil {
			t.Fatal(err)
		}
	}
	nothing := func(*v1alpha1.NodeReadinessRule) {}
	if write(fieldManager, "status", nothing); len(f.woken)+len(f.ruled) > 0 {
		t.Errorf("our status enqueues %v, %v", f.woken, f.ruled)
	}
	if write("other", "status", nothing); len(f.woken) > 0 || !slices.Equal(f.ruled, []string{"r0"}) {
		t.Errorf("another controller's status enqueues %v, %v", f.woken, f.ruled)
	}
	if write("kubectl", "", func(r *v1alpha1.NodeReadinessRule) { r.Generation++; r.Spec.DryRun = true }); len(f.woken) != 10 || !slices.Equal(f.ruled, []string{"r0", "r1"}) {
		t.Errorf("a change of the rule enqueues %v, %v", f.woken, f.ruled)
	}
}

// A node changes after another rule was deleted, and before a scrape counts the nodes. The change is in the status.
func TestStatusFollowsAfterAnotherRuleIsDeleted(t *testing.T) {
	f, w := serve(t, agentRule(0), agentRule(1)), &writer{}
	n := closed(newcomer("n", corev1.ConditionFalse))
	f.show(t, n)
	if _, err := f.reconcile(t, f.nodes, w); err != nil {
		t.Fatal(err)
	}
	f.ruled = nil
	if err := f.Replace(t.Context(), []*v1alpha1.NodeReadinessRule{agentRule(0)}); err != nil {
		t.Fatal(err)
	}
	n = n.DeepCopy()
	n.Status.Conditions[0].Status = corev1.ConditionUnknown
	f.show(t, n)
	if _, err := f.Tallies(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(f.ruled, "r0") {
		t.Errorf("enqueued are the rules %v", f.ruled)
	}
}

// Until the rules are listed, this process only remembers which nodes wait. The first list enqueues those nodes, and
// the nodes that a rule concerns. So a new leader need not reconcile all nodes.
func TestFirstListEnqueuesWhatItConcerns(t *testing.T) {
	node := func(name, role string) *corev1.Node {
		n := &corev1.Node{}
		n.Name, n.UID, n.Labels = name, types.UID("uid-"+name), map[string]string{"role": role}
		return n
	}
	f := &fixture{nodes: cached{"waits": node("waits", "a"), "concerned": node("concerned", "b"), "neither": node("neither", "a"), "gone": node("gone", "b")}}
	f.Rules = &Rules{Nodes: f.nodes, Now: time.Now, Counters: NewCounters(), Events: silent{},
		EnqueueNode: func(name string) { f.woken = append(f.woken, name) }, EnqueueRule: func(string) {}}
	f.serving = serving{definition: definitionPresent}
	for _, n := range f.nodes {
		f.ObserveNode(nil, n)
		if f.Concern(n) {
			t.Errorf("a rule that is not listed concerns node %s", n.Name)
		}
	}
	for _, name := range []string{"waits", "gone"} {
		if plan, done := f.Plan(f.nodes[name]); plan.Unavailable == "" {
			t.Errorf("rules are served before they are listed")
		} else {
			done()
		}
	}
	if len(f.Rules.nodes) != 0 {
		t.Errorf("%d nodes are kept before the rules are listed", len(f.Rules.nodes))
	}
	delete(f.nodes, "gone")
	f.ForgetNode("gone")
	r := &v1alpha1.NodeReadinessRule{}
	r.Name, r.UID = "r", "uid-r"
	r.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"role": "b"}}
	r.Spec.Conditions = []v1alpha1.ConditionRequirement{{Type: "a/B", RequiredStatus: corev1.ConditionTrue}}
	r.Spec.Taint = corev1.Taint{Key: "readiness.k8s.io/a", Effect: corev1.TaintEffectNoSchedule}
	r.Spec.EnforcementMode = v1alpha1.ModeContinuous
	if err := f.Replace(t.Context(), []*v1alpha1.NodeReadinessRule{r}); err != nil {
		t.Fatal(err)
	}
	if slices.Sort(f.woken); !slices.Equal(f.woken, []string{"concerned", "waits"}) {
		t.Errorf("enqueued %v", f.woken)
	}
	if !f.Concern(f.nodes["concerned"]) || f.Concern(f.nodes["neither"]) {
		t.Error("the rule concerns what it does not select")
	}
}

// A change of who serves rules enqueues only the nodes that it concerns, because there may be tens of thousands of
// others.
func TestServingEnqueuesWhatItConcerns(t *testing.T) {
	rule := agentRule(2) // in dryRun
	f := serve(t, rule)
	for name, change := range map[string]func(*corev1.Node){
		"selected": func(n *corev1.Node) { n.Labels = map[string]string{"role": "worker"} },
		"tainted":  func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{rule.Spec.Taint} },
		"of a rule that is gone": func(n *corev1.Node) {
			n.Annotations = map[string]string{marks.AnnotationRules: marks.Owned{"uid": {Key: "a/b", Effect: corev1.TaintEffectNoSchedule}}.Encode()}
		},
		"waits": func(*corev1.Node) {}, "neither": func(*corev1.Node) {},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		change(n)
		f.nodes[name] = n
	}
	f.await("waits")
	for _, want := range [][]string{{"of a rule that is gone", "selected", "tainted", "waits"}, nil} {
		f.woken = nil
		f.reportState(t.Context())
		if slices.Sort(f.woken); !slices.Equal(f.woken, want) {
			t.Errorf("enqueued %v, want %v", f.woken, want)
		}
	}
}
