package rule

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// applied is the node after the change, as the API server would store it. It applies the patch itself.
func applied(t *testing.T, n *corev1.Node, c marks.RuleChange) *corev1.Node {
	t.Helper()
	var patch struct {
		Metadata struct{ Annotations map[string]*string }
		Spec     *struct{ Taints []corev1.Taint }
	}
	if err := json.Unmarshal(marks.Change{KeepRecord: true, Rules: c}.Patch(n, marks.Vocabulary{}), &patch); err != nil {
		t.Fatal(err)
	}
	out := n.DeepCopy()
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	for k, v := range patch.Metadata.Annotations {
		if v == nil {
			delete(out.Annotations, k)
		} else {
			out.Annotations[k] = *v
		}
	}
	if patch.Spec != nil {
		out.Spec.Taints = patch.Spec.Taints
	}
	return out
}

func some[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

func randomRules(r *rand.Rand) []Rule {
	var all []*v1alpha1.NodeReadinessRule
	for i := range r.IntN(4) {
		all = append(all, aRule(fmt.Sprint("r", i), func(rule *v1alpha1.NodeReadinessRule) {
			rule.Spec.Taint.Key = some(r, marks.RuleTaintPrefix, marks.RuleAutoscalerPrefix) + some(r, "x", "y")
			rule.Spec.EnforcementMode = some(r, v1alpha1.ModeContinuous, v1alpha1.ModeBootstrapOnly)
			rule.Spec.Conditions[0].Type = some(r, "c", "d")
			rule.Spec.DryRun = r.IntN(5) == 0
			rule.CreationTimestamp = metav1.NewTime(ruleTime.Add(-time.Duration(r.IntN(3)) * time.Minute))
			if r.IntN(6) == 0 {
				unfinalized(rule)
			} else if r.IntN(4) == 0 {
				isDeleted(rule)
			}
			if r.IntN(8) == 0 {
				rule.Spec.NodeSelector = metav1.LabelSelector{}
			}
		}))
	}
	return compiled(all...)
}

func randomWorker(r *rand.Rand) *corev1.Node {
	n := aWorker(carries("example.com/foreign"), carries("node-ready/unverified"))
	if r.IntN(4) == 0 {
		carries("karpenter.sh/unregistered")(n)
	}
	if r.IntN(4) == 0 { // forged
		ownedBy(some(r, "r0", "unknown"), some(r, "example.com/foreign", "node-ready/unverified", "karpenter.sh/unregistered"))(n)
	}
	for _, prefix := range []string{marks.RuleTaintPrefix, marks.RuleAutoscalerPrefix} {
		for _, name := range []string{"x", "y", "foreign"} {
			if r.IntN(2) == 0 {
				carries(prefix + name)(n)
			}
			if r.IntN(3) == 0 {
				ownedBy(some(r, "r0", "r1", "r2", "unknown"), prefix+name)(n)
			}
		}
	}
	for _, c := range []string{"c", "d"} {
		if s := some(r, "", corev1.ConditionTrue, corev1.ConditionFalse); s != "" {
			reports(c, s)(n)
		}
	}
	if r.IntN(3) == 0 {
		elsewhere(n)
	}
	if r.IntN(4) == 0 {
		hasPassed("uid-r" + fmt.Sprint(r.IntN(3)))(n)
	}
	return n
}

// Applying the rules to a node once is enough: nothing flaps, whatever the rules and the node are. Only taints that a
// rule names or owns change. The patch that adds a taint also records its owner, and no taint has two owners among the
// active rules. Once no rule is left, none of their marks is left.
func TestRulesSettleOnAnyNode(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	for i := range 20000 {
		rules, n := randomRules(r), randomWorker(r)
		now := Node{Node: n, Gating: ruleGating, Adopting: map[string]time.Time{}}
		for _, rule := range rules {
			now.Adopting[rule.UID] = ruleTime.Add(-time.Hour) // whatever was to be adopted is written now
		}
		if n.Labels["role"] != "worker" {
			now.Adopting = nil
		}
		if r.IntN(4) == 0 {
			now.Released = []string{"uid-r0", "uid-r1", "uid-r2"}
		}
		plan := Next(now, rules, 0, ruleTime)
		after := applied(t, n, plan.Change)
		what := func() string {
			b, _ := json.Marshal(map[string]any{"node": n, "after": after, "acts": said(plan), "rules": fmt.Sprintf("%+v", rules)})
			return fmt.Sprintf("case %d: %s", i, b)
		}
		now.Node = after
		if again := Next(now, rules, 0, ruleTime); !again.Change.Empty() {
			t.Fatalf("it does not settle: %s; %s", said(again), what())
		}
		owned, before := marks.OwnedOn(after), marks.OwnedOn(n)
		for _, taint := range after.Spec.Taints {
			if !slices.Contains(n.Spec.Taints, taint) && !hasOwner(owned, marks.TaintIDOf(taint), rules) {
				t.Fatalf("%s has no owner; %s", taint.Key, what())
			}
		}
		for _, taint := range n.Spec.Taints {
			id := marks.TaintIDOf(taint)
			named := strings.HasPrefix(id.Key, marks.RuleTaintPrefix) && slices.Contains(slices.Collect(maps.Values(before)), id) ||
				slices.ContainsFunc(rules, func(rule Rule) bool { return rule.Taint.ID() == id })
			if !named && !slices.Contains(after.Spec.Taints, taint) {
				t.Fatalf("%s is gone; %s", taint.Key, what())
			}
		}
		for uid, id := range owned {
			alive := slices.ContainsFunc(rules, func(rule Rule) bool { return rule.UID == uid && (rule.idle() || rule.Active()) })
			known := slices.ContainsFunc(rules, func(rule Rule) bool { return rule.UID == uid && rule.Taint.ID() == id })
			if known && !alive && !Tainted(after, marks.TaintID{Key: "karpenter.sh/unregistered", Effect: "NoSchedule"}) {
				t.Fatalf("%s is owned by a rule that is deleted or refused; %s", id, what())
			}
		}
	}
}

func hasOwner(owned marks.Owned, id marks.TaintID, rules []Rule) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return owned[r.UID] == id && r.Active() })
}

func TestOverruled(t *testing.T) {
	selects := func(expressions ...metav1.LabelSelectorRequirement) func(*v1alpha1.NodeReadinessRule) {
		return func(r *v1alpha1.NodeReadinessRule) {
			r.Spec.NodeSelector = metav1.LabelSelector{MatchExpressions: expressions}
		}
	}
	is := func(op metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: "role", Operator: op, Values: values}
	}
	for name, c := range map[string]struct {
		second func(*v1alpha1.NodeReadinessRule)
		want   bool
	}{
		"the same":              {func(*v1alpha1.NodeReadinessRule) {}, true},
		"other value":           {selects(is(metav1.LabelSelectorOpIn, "other")), false},
		"one of its values":     {selects(is(metav1.LabelSelectorOpIn, "other", "worker")), true},
		"not that value":        {selects(is(metav1.LabelSelectorOpNotIn, "worker")), false},
		"not another value":     {selects(is(metav1.LabelSelectorOpNotIn, "other")), true},
		"there":                 {selects(is(metav1.LabelSelectorOpExists)), true},
		"not there":             {selects(is(metav1.LabelSelectorOpDoesNotExist)), false},
		"another label":         {selects(metav1.LabelSelectorRequirement{Key: "zone", Operator: metav1.LabelSelectorOpExists}), true},
		"contradicts itself":    {selects(metav1.LabelSelectorRequirement{Key: "zone", Operator: metav1.LabelSelectorOpExists}, metav1.LabelSelectorRequirement{Key: "zone", Operator: metav1.LabelSelectorOpDoesNotExist}), false},
		"another effect":        {func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Effect = "NoExecute" }, false},
		"on its way out":        {isDeleted, false},
		"would be, in dry run":  {inDryRun, true},
		"refused for something": {func(r *v1alpha1.NodeReadinessRule) { r.Spec.Conditions = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			over := Overruled(compiled(aRule("b", younger, c.second), aRule("a")))
			if winner := over["uid-b"]; (winner != nil) != c.want || winner != nil && winner.Name != "a" || over["uid-a"] != nil {
				t.Errorf("overruled: %v", over)
			}
		})
	}
	if over := Overruled(compiled(aRule("a", inDryRun), aRule("b", younger))); len(over) > 0 {
		t.Error("a dry-run rule overrules")
	}
}

// A rule that our definition rejects, and another definition may admit, is refused. The message names the field.
func TestFaultyRulesNameTheField(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.NodeReadinessRule){
		"spec.nodeSelector: Required value: must not be empty": func(r *v1alpha1.NodeReadinessRule) { r.Spec.NodeSelector = metav1.LabelSelector{} },
		"spec.nodeSelector: Invalid value": func(r *v1alpha1.NodeReadinessRule) {
			r.Spec.NodeSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
		},
		"spec.conditions[0].defaultStatus: Forbidden": func(r *v1alpha1.NodeReadinessRule) {
			bootstrapOnly(r)
			r.Spec.Conditions[0].DefaultStatus = "True"
		},
		"spec.conditionPolicy: Forbidden":         func(r *v1alpha1.NodeReadinessRule) { bootstrapOnly(r); anyOf(r) },
		"spec.conditionPolicy: Unsupported value": func(r *v1alpha1.NodeReadinessRule) { r.Spec.ConditionPolicy = "noneOf" },
		"spec.enforcementMode: Unsupported value": func(r *v1alpha1.NodeReadinessRule) { r.Spec.EnforcementMode = "" },
		"spec.conditions: Required value":         func(r *v1alpha1.NodeReadinessRule) { r.Spec.Conditions = nil },
		"\"example.com/x\": must start with 'readiness.k8s.io/' or 'startup-taint.cluster-autoscaler.kubernetes.io/'": func(r *v1alpha1.NodeReadinessRule) {
			r.Spec.Taint.Key = "example.com/x"
		},
		"a legal key is 'startup-taint.cluster-autoscaler.kubernetes.io/a-b'": func(r *v1alpha1.NodeReadinessRule) {
			r.Spec.Taint.Key = "startup-taint.cluster-autoscaler.kubernetes.io/a/b"
		},
		"a legal key is 'readiness.k8s.io/falco.org-security-agent-ready'": func(r *v1alpha1.NodeReadinessRule) {
			r.Spec.Taint.Key = "readiness.k8s.io/falco.org/security-agent-ready"
		},
		"spec.taint.key: Invalid value: \"readiness.k8s.io/\"": func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Key = "readiness.k8s.io/" },
		"spec.taint.value: Invalid value":                      func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Value = "a b" },
		"spec.taint.effect: Unsupported value":                 func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Effect = "Never" },
	} {
		if got := compiled(aRule("a", change))[0].Invalid; !strings.Contains(got, want) {
			t.Errorf("want %q in %q", want, got)
		}
	}
	gating := Compile(aRule("a"), []marks.Taint{{Key: agentTaint, Effect: "NoSchedule"}})
	if !strings.Contains(gating.Invalid, "spec.taint: Invalid value") || !strings.Contains(gating.Invalid, "nodeManagement.taints") {
		t.Error(gating.Invalid)
	}
	if ok := compiled(aRule("a"), aRule("b", bootstrapOnly), aRule("c", anyOf)); ok[0].Invalid+ok[1].Invalid+ok[2].Invalid != "" {
		t.Error(ok)
	}
}
