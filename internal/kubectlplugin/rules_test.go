package kubectlplugin

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// status and explain say why rules are not served: by the condition of a rule that was served before, or by that of a
// node that waits for rules.
func TestWhyRulesAreNotServed(t *testing.T) {
	for _, c := range []struct{ conditionType, status, reason, want string }{
		{"Serving", "True", "Serving", ""},
		{"Serving", "True", "DryRun", ""},
		{"Serving", "False", "Refused", ""}, // refusedRules names it
		{"Serving", "False", "StandingBack", "NodeReadinessRule r is not served (StandingBack): why"},
		{"Serving", "False", "Forbidden", "NodeReadinessRule r is not served (Forbidden): why"},
		{"Accepted", "False", "Forbidden", ""},
	} {
		r := &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
		r.Status.Conditions = []metav1.Condition{{Type: c.conditionType, Status: metav1.ConditionStatus(c.status), Reason: c.reason, Message: "why"}}
		if got := notServed(r); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	for reason, want := range map[string]string{"RulesUnavailable": "Node n: Waiting: why", "WaitingForSlot": ""} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}, {Type: marks.ConditionType, Reason: reason, Message: "Waiting: why"}}
		if got := waitsForRules(n); got != want {
			t.Errorf("%s: %q", reason, got)
		}
	}
}

// ruled is an invocation that has read a rule, and a node with a condition of that rule.
func ruled(t *testing.T, settings string, rules ...rule.Rule) *invocation {
	return &invocation{now: now, ruleSet: rules, cluster: &cluster{config: configuration(t, settings)}}
}

func agentRule() rule.Rule {
	r := &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: "agent", UID: "rule", Finalizers: []string{v1alpha1.Finalizer}}}
	r.Spec.Conditions = []v1alpha1.ConditionRequirement{{Type: "agent/Ready", RequiredStatus: "True"}}
	r.Spec.EnforcementMode, r.Spec.NodeSelector.MatchLabels = v1alpha1.ModeContinuous, map[string]string{"role": "worker"}
	r.Spec.Taint = corev1.Taint{Key: "readiness.k8s.io/agent", Effect: corev1.TaintEffectNoSchedule}
	return rule.Compile(r, nil)
}

func TestWhichRuleHoldsANode(t *testing.T) {
	agent := func(status corev1.ConditionStatus) change {
		return func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "agent/Ready", Status: status})
		}
	}
	worker, held, before := label("role", "worker"), tainted("readiness.k8s.io/agent"), annotated(marks.AnnotationReleased, `["rule"]`)
	karpenter := label("karpenter.sh/nodepool", "a")
	for name, c := range map[string]struct {
		changes  []change
		settings string
		want     string
	}{
		"not selected":              {[]change{held, agent("False")}, "", ""},
		"held":                      {[]change{worker, held, agent("False")}, "", "Rule agent: agent/Ready is False and must be True"},
		"no such condition":         {[]change{worker, held}, "", "Rule agent: agent/Ready is Unknown and must be True"},
		"about to be held":          {[]change{worker}, "", "Rule agent: agent/Ready is Unknown and must be True; the taint is not on the node yet"},
		"about to be released":      {[]change{worker, held, agent("True")}, "", "Rule agent: its conditions hold, and the taint is still on the node"},
		"waits for registration":    {[]change{worker, held, agent("True"), karpenter}, "", "Rule agent: its conditions hold, and the taint stays until Karpenter has registered the node"},
		"released":                  {[]change{worker, agent("True")}, "", ""},
		"left open":                 {[]change{worker, before}, "rules: {maxClosedPercent: 10}", ""},
		"never released, and limit": {[]change{worker}, "rules: {maxClosedPercent: 10}", "Rule agent: agent/Ready is Unknown and must be True; the taint is not on the node yet"},
	} {
		v := ruled(t, c.settings, agentRule())
		views := v.evaluateRules(makeNode(c.changes...))
		if got := heldByRule(views); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if name == "left open" && (len(views) != 1 || !views[0].LeftOpen || views[0].Why != "agent/Ready is Unknown and must be True; left open by rules.maxClosedPercent") {
			t.Errorf("%s: %+v", name, views)
		}
	}
	two := ruled(t, "", agentRule(), func() rule.Rule {
		r := agentRule()
		r.Name, r.UID, r.Taint.Key = "other", "other", "readiness.k8s.io/other"
		return r
	}())
	if got := heldByRule(two.evaluateRules(makeNode(worker, held))); got != "Rule agent: agent/Ready is Unknown and must be True (and 1 more)" {
		t.Error(got)
	}
}

// Of a large cluster status shows a node that a rule holds although it is verified.
func TestNodesThatRulesHoldAreShown(t *testing.T) {
	v := ruled(t, "", agentRule())
	var list []nodeState
	for i := range maxRows + 10 {
		n := makeNode(labelled)
		n.Name = fmt.Sprintf("n%d", i)
		if i == maxRows+5 {
			label("role", "worker")(n)
		}
		s := observe(v.cluster.config, n, nil)
		s.rules = v.evaluateRules(n)
		list = append(list, s)
	}
	if shown := v.choose(list); len(shown) != 1 || shown[0].node.Name != fmt.Sprintf("n%d", maxRows+5) {
		t.Errorf("%d are shown", len(shown))
	}
	if got := heldByRules(list); got != "agent 1" {
		t.Error(got)
	}
}

func TestRefusedRulesAreNamed(t *testing.T) {
	r := agentRule()
	r.Invalid = "spec.nodeSelector: Required value"
	if got := ruled(t, "", agentRule(), r).refusedRules(); len(got) != 1 || got[0] != "NodeReadinessRule agent is refused: spec.nodeSelector: Required value" {
		t.Errorf("%q", got)
	}
}
