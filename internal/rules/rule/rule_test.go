package rule

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

var ruleTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// aRule makes a continuous rule that asks nodes labelled role=worker for the condition agent/Ready.
func aRule(name string, change ...func(*v1alpha1.NodeReadinessRule)) *v1alpha1.NodeReadinessRule {
	r := &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Finalizers: []string{v1alpha1.Finalizer},
		CreationTimestamp: metav1.NewTime(ruleTime.Add(-time.Hour))}}
	r.Spec = v1alpha1.NodeReadinessRuleSpec{
		Conditions:      []v1alpha1.ConditionRequirement{{Type: "agent/Ready", RequiredStatus: corev1.ConditionTrue}},
		EnforcementMode: v1alpha1.ModeContinuous,
		Taint:           corev1.Taint{Key: "readiness.k8s.io/agent", Value: "wait", Effect: corev1.TaintEffectNoSchedule},
		NodeSelector:    metav1.LabelSelector{MatchLabels: map[string]string{"role": "worker"}},
	}
	for _, f := range change {
		f(r)
	}
	return r
}

func bootstrapOnly(r *v1alpha1.NodeReadinessRule) {
	r.Spec.EnforcementMode = v1alpha1.ModeBootstrapOnly
}
func inDryRun(r *v1alpha1.NodeReadinessRule)    { r.Spec.DryRun = true }
func unfinalized(r *v1alpha1.NodeReadinessRule) { r.Finalizers = nil }
func anyOf(r *v1alpha1.NodeReadinessRule)       { r.Spec.ConditionPolicy = v1alpha1.PolicyAnyOf }
func younger(r *v1alpha1.NodeReadinessRule)     { r.CreationTimestamp = metav1.NewTime(ruleTime) }
func isDeleted(r *v1alpha1.NodeReadinessRule) {
	r.DeletionTimestamp = &metav1.Time{Time: ruleTime}
}
func asks(c ...v1alpha1.ConditionRequirement) func(*v1alpha1.NodeReadinessRule) {
	return func(r *v1alpha1.NodeReadinessRule) { r.Spec.Conditions = c }
}

var ruleGating = []marks.Taint{{Key: "node-ready/unverified", Effect: corev1.TaintEffectNoSchedule}}

func compiled(rules ...*v1alpha1.NodeReadinessRule) []Rule {
	var out []Rule
	for _, r := range rules {
		out = append(out, Compile(r, ruleGating))
	}
	Sort(out)
	return out
}

// aWorker makes a node labelled role=worker.
func aWorker(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node", Labels: map[string]string{"role": "worker"}, Annotations: map[string]string{}}}
	for _, f := range change {
		f(n)
	}
	return n
}

func reports(condition string, status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(condition), Status: status})
	}
}

func carries(key string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: "other", Effect: corev1.TaintEffectNoSchedule})
	}
}

func ownedBy(name, key string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		owned := marks.OwnedOn(n)
		if owned == nil {
			owned = marks.Owned{}
		}
		owned["uid-"+name] = marks.TaintID{Key: key, Effect: corev1.TaintEffectNoSchedule}
		n.Annotations[marks.AnnotationRules] = owned.Encode()
	}
}

func unregistered(n *corev1.Node) { n.Labels["karpenter.sh/nodepool"] = "default" }
func elsewhere(n *corev1.Node)    { n.Labels["role"] = "other" }

// hasPassed is a node that completed the rule of that UID or name, after the rule was created.
func hasPassed(suffix string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		completes(suffix)(n)
		writtenAt(suffix, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))(n)
	}
}

func completes(suffix string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations["readiness.k8s.io/bootstrap-completed-"+suffix] = "true" }
}

// writtenAt has the API server's account of when a rule's completion by name was written.
func writtenAt(name string, at time.Time) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.ManagedFields = append(n.ManagedFields, metav1.ManagedFieldsEntry{Manager: "nrc", Time: ptr.To(metav1.NewTime(at)),
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:readiness.k8s.io/bootstrap-completed-` + name + `":{}}}}`)})
	}
}

func createdAt(at time.Time) func(*v1alpha1.NodeReadinessRule) {
	return func(r *v1alpha1.NodeReadinessRule) { r.CreationTimestamp = metav1.NewTime(at) }
}

const (
	agentTaint      = "readiness.k8s.io/agent"
	autoscalerTaint = "startup-taint.cluster-autoscaler.kubernetes.io/agent"
)

func forAutoscaler(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Key = autoscalerTaint }

// said renders a plan in one line: the operations and, if they change, the recorded owners of taints after it.
func said(p Plan) string {
	var words []string
	for _, a := range p.Actions {
		words = append(words, string(a.Operation)+" "+a.Rule.Name)
	}
	if p.Change.Owned != nil {
		words = append(words, "owned "+p.Change.Owned.Encode())
	}
	return strings.Join(words, "; ")
}

func TestWhatRulesAskOfANode(t *testing.T) {
	const isOwned = `owned {"uid-a":"readiness.k8s.io/agent:NoSchedule"}`
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		rules []*v1alpha1.NodeReadinessRule
		node  *corev1.Node
		want  string
	}{
		"no condition: held": {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(), "add a; " + isOwned},
		"False: held":        {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(reports("agent/Ready", "False")), "add a; " + isOwned},
		"held already":       {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(carries(agentTaint), ownedBy("a", agentTaint)), ""},
		"True: free":         {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(reports("agent/Ready", "True")), ""},
		"True: released":     {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(reports("agent/Ready", "True"), carries(agentTaint), ownedBy("a", agentTaint)), "remove a; owned {}"},
		"True, the taint was never ours: released":    {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(reports("agent/Ready", "True"), carries(agentTaint)), "remove a"},
		"somebody took the taint off":                 {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(ownedBy("a", agentTaint)), "add a"},
		"no finalizer yet":                            {[]*v1alpha1.NodeReadinessRule{aRule("a", unfinalized)}, aWorker(), ""},
		"somebody took the finalizer: left alone":     {[]*v1alpha1.NodeReadinessRule{aRule("a", unfinalized)}, aWorker(carries(agentTaint), ownedBy("a", agentTaint)), ""},
		"not selected":                                {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(elsewhere), ""},
		"left the selector: released":                 {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(elsewhere, carries(agentTaint), ownedBy("a", agentTaint)), "remove a; owned {}"},
		"left the selector, taint gone":               {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(elsewhere, ownedBy("a", agentTaint)), "owned {}"},
		"not selected, a foreign taint":               {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(elsewhere, carries(agentTaint)), ""},
		"deleted: released":                           {[]*v1alpha1.NodeReadinessRule{aRule("a", isDeleted)}, aWorker(carries(agentTaint), ownedBy("a", agentTaint)), "remove a; owned {}"},
		"deleted before it was written down":          {[]*v1alpha1.NodeReadinessRule{aRule("a", isDeleted)}, aWorker(carries(agentTaint)), "remove a"},
		"deleted and released":                        {[]*v1alpha1.NodeReadinessRule{aRule("a", isDeleted, unfinalized)}, aWorker(carries(agentTaint)), ""},
		"deleted, not selected, foreign taint":        {[]*v1alpha1.NodeReadinessRule{aRule("a", isDeleted)}, aWorker(elsewhere, carries(agentTaint)), ""},
		"deleted, passed, foreign taint":              {[]*v1alpha1.NodeReadinessRule{aRule("a", isDeleted, bootstrapOnly)}, aWorker(carries(agentTaint), hasPassed("uid-a")), ""},
		"deleted dry run: what it owned is released":  {[]*v1alpha1.NodeReadinessRule{aRule("a", isDeleted, inDryRun)}, aWorker(carries(agentTaint), ownedBy("a", agentTaint)), "remove a; owned {}"},
		"dry run leaves taints":                       {[]*v1alpha1.NodeReadinessRule{aRule("a", inDryRun)}, aWorker(carries(agentTaint), ownedBy("a", agentTaint)), ""},
		"dry run taints nothing":                      {[]*v1alpha1.NodeReadinessRule{aRule("a", inDryRun)}, aWorker(), ""},
		"a rule that is gone: released":               {nil, aWorker(carries(agentTaint), ownedBy("x", agentTaint)), "remove ; owned {}"},
		"a rule that is gone, and its taint":          {nil, aWorker(ownedBy("x", agentTaint)), "owned {}"},
		"a rule made anew keeps the taint":            {[]*v1alpha1.NodeReadinessRule{aRule("a", unfinalized)}, aWorker(carries(agentTaint), ownedBy("x", agentTaint)), "owned {}"},
		"an unknown rule's taint is taken over":       {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(carries(agentTaint), ownedBy("x", agentTaint)), "adopt a; " + isOwned},
		"bootstrap: held":                             {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly)}, aWorker(), "add a; " + isOwned},
		"bootstrap: passed":                           {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly)}, aWorker(reports("agent/Ready", "True"), carries(agentTaint), ownedBy("a", agentTaint)), "remove a; complete a; owned {}"},
		"bootstrap: good from the start":              {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly)}, aWorker(reports("agent/Ready", "True")), "complete a"},
		"bootstrap: never again":                      {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly)}, aWorker(reports("agent/Ready", "False"), hasPassed("uid-a")), ""},
		"bootstrap: never again, by the old name":     {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly)}, aWorker(reports("agent/Ready", "False"), hasPassed("a")), ""},
		"by the old name, written later":              {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly, createdAt(now))}, aWorker(completes("a"), writtenAt("a", now)), ""},
		"by the name of an earlier rule":              {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly, createdAt(now))}, aWorker(completes("a"), writtenAt("a", now.Add(-time.Hour))), "add a; " + isOwned},
		"by a name, and nobody knows when":            {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly, createdAt(now))}, aWorker(completes("a")), "add a; " + isOwned},
		"the name of another is newer":                {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly, createdAt(now))}, aWorker(completes("a"), writtenAt("b", now)), "add a; " + isOwned},
		"by UID, whenever that was":                   {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly, createdAt(now))}, aWorker(completes("uid-a")), ""},
		"bootstrap: its taint is back":                {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly)}, aWorker(reports("agent/Ready", "True"), carries(agentTaint), hasPassed("uid-a")), "remove a"},
		"bootstrap: its taint is back, as NRC has it": {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly)}, aWorker(reports("agent/Ready", "True"), carries(agentTaint), hasPassed("a")), "remove a"},
		"bootstrap: the annotation alone":             {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly)}, aWorker(carries(agentTaint), hasPassed("uid-a")), ""},
		"bootstrap: not registered by Karpenter":      {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly)}, aWorker(unregistered, reports("agent/Ready", "True"), carries(agentTaint), ownedBy("a", agentTaint)), ""},
		"bootstrap: good, not registered":             {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly)}, aWorker(unregistered, reports("agent/Ready", "True")), ""},
		"True: not registered by Karpenter":           {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(unregistered, reports("agent/Ready", "True"), carries(agentTaint), ownedBy("a", agentTaint)), ""},
		"deleted: not registered by Karpenter":        {[]*v1alpha1.NodeReadinessRule{aRule("a", isDeleted)}, aWorker(unregistered, carries(agentTaint), ownedBy("a", agentTaint)), ""},
		"False: not registered by Karpenter":          {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(unregistered), "add a; " + isOwned},
		"continuous: a passed bootstrap is no matter": {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(hasPassed("uid-a")), "add a; " + isOwned},
		"two rules, one taint: the older decides":     {[]*v1alpha1.NodeReadinessRule{aRule("b", younger), aRule("a")}, aWorker(), "add a; " + isOwned},
		"two of one age: by name":                     {[]*v1alpha1.NodeReadinessRule{aRule("b"), aRule("a")}, aWorker(), "add a; " + isOwned},
		"the older releases, the younger would hold": {[]*v1alpha1.NodeReadinessRule{aRule("a"), aRule("b", younger, asks(v1alpha1.ConditionRequirement{Type: "other", RequiredStatus: "True"}))},
			aWorker(reports("agent/Ready", "True"), carries(agentTaint), ownedBy("b", agentTaint)), "remove a; owned {}"},
		"the older is deleted: the younger takes over": {[]*v1alpha1.NodeReadinessRule{aRule("a", isDeleted), aRule("b", younger)},
			aWorker(carries(agentTaint), ownedBy("a", agentTaint)), `adopt b; owned {"uid-b":"readiness.k8s.io/agent:NoSchedule"}`},
		"the younger is deleted: nothing happens":     {[]*v1alpha1.NodeReadinessRule{aRule("a"), aRule("b", younger, isDeleted)}, aWorker(carries(agentTaint), ownedBy("a", agentTaint)), ""},
		"a dry run does not overrule":                 {[]*v1alpha1.NodeReadinessRule{aRule("z", inDryRun), aRule("a", younger)}, aWorker(), "add a; " + isOwned},
		"refused: what it owned is released":          {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly, anyOf)}, aWorker(carries(agentTaint), ownedBy("a", agentTaint)), "remove a; owned {}"},
		"refused, and never written down: released":   {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly, anyOf)}, aWorker(carries(agentTaint)), "remove a"},
		"refused, for a key that is no rule's":        {[]*v1alpha1.NodeReadinessRule{aRule("a", func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Key = "karpenter.sh/unregistered" })}, aWorker(carries("karpenter.sh/unregistered")), ""},
		"refused, another rule decides":               {[]*v1alpha1.NodeReadinessRule{aRule("b"), aRule("a", bootstrapOnly, anyOf)}, aWorker(carries(agentTaint), ownedBy("b", agentTaint)), ""},
		"refused, selects no such node":               {[]*v1alpha1.NodeReadinessRule{aRule("a", bootstrapOnly, anyOf)}, aWorker(elsewhere, carries(agentTaint)), ""},
		"forged: a foreign taint":                     {[]*v1alpha1.NodeReadinessRule{aRule("a", isDeleted)}, aWorker(carries("tenant.example.com/secret"), ownedBy("a", "tenant.example.com/secret")), ""},
		"forged: a foreign taint, by an unknown rule": {nil, aWorker(carries("tenant.example.com/secret"), ownedBy("x", "tenant.example.com/secret")), ""},
		"forged: Karpenter's":                         {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(elsewhere, carries("karpenter.sh/unregistered"), ownedBy("a", "karpenter.sh/unregistered")), ""},
		"forged: our gate":                            {nil, aWorker(carries("node-ready/unverified"), ownedBy("x", "node-ready/unverified")), ""},
		"forged: what a dry run holds":                {[]*v1alpha1.NodeReadinessRule{aRule("a", inDryRun)}, aWorker(carries(agentTaint), ownedBy("x", agentTaint)), ""},
		"forged: a start-up taint of whoever it is":   {nil, aWorker(carries(autoscalerTaint), ownedBy("x", autoscalerTaint)), ""},
		"forged: such a taint, by a rule of another":  {[]*v1alpha1.NodeReadinessRule{aRule("a", isDeleted)}, aWorker(carries(autoscalerTaint), ownedBy("a", autoscalerTaint)), ""},
		"a rule's taint of the autoscaler's prefix":   {[]*v1alpha1.NodeReadinessRule{aRule("a", forAutoscaler, isDeleted)}, aWorker(carries(autoscalerTaint), ownedBy("a", autoscalerTaint)), "remove a; owned {}"},
		"that taint, held": {[]*v1alpha1.NodeReadinessRule{aRule("a", forAutoscaler)}, aWorker(),
			`add a; owned {"uid-a":"startup-taint.cluster-autoscaler.kubernetes.io/agent:NoSchedule"}`},
		"forged: another rule's": {[]*v1alpha1.NodeReadinessRule{aRule("a"), aRule("b", func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Key = "readiness.k8s.io/b" })},
			aWorker(carries("readiness.k8s.io/b"), ownedBy("a", "readiness.k8s.io/b")), "add a; adopt b; " + isOwned},
		"refused: no node is tainted":                {[]*v1alpha1.NodeReadinessRule{aRule("a", func(r *v1alpha1.NodeReadinessRule) { r.Spec.NodeSelector = metav1.LabelSelector{} })}, aWorker(), ""},
		"a missing condition's default counts":       {[]*v1alpha1.NodeReadinessRule{aRule("a", asks(v1alpha1.ConditionRequirement{Type: "x", RequiredStatus: "False", DefaultStatus: "False"}))}, aWorker(), ""},
		"a default is for missing ones":              {[]*v1alpha1.NodeReadinessRule{aRule("a", asks(v1alpha1.ConditionRequirement{Type: "x", RequiredStatus: "False", DefaultStatus: "False"}))}, aWorker(reports("x", "True")), "add a; " + isOwned},
		"Unknown is what absence counts as":          {[]*v1alpha1.NodeReadinessRule{aRule("a", asks(v1alpha1.ConditionRequirement{Type: "x", RequiredStatus: "Unknown"}))}, aWorker(), ""},
		"all of two":                                 {[]*v1alpha1.NodeReadinessRule{aRule("a", twoConditions)}, aWorker(reports("x", "True")), "add a; " + isOwned},
		"any of two":                                 {[]*v1alpha1.NodeReadinessRule{aRule("a", twoConditions, anyOf)}, aWorker(reports("y", "True")), ""},
		"any of two, none":                           {[]*v1alpha1.NodeReadinessRule{aRule("a", twoConditions, anyOf)}, aWorker(), "add a; " + isOwned},
		"a node on its way out":                      {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: ruleTime} }), ""},
		"an unreadable account owns nothing":         {[]*v1alpha1.NodeReadinessRule{aRule("a", isDeleted)}, aWorker(elsewhere, carries(agentTaint), func(n *corev1.Node) { n.Annotations[marks.AnnotationRules] = "x" }), ""},
		"another effect is another taint":            {[]*v1alpha1.NodeReadinessRule{aRule("a", func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Effect = "NoExecute" })}, aWorker(carries(agentTaint)), `add a; owned {"uid-a":"readiness.k8s.io/agent:NoExecute"}`},
		"the rule's taint changed":                   {[]*v1alpha1.NodeReadinessRule{aRule("a")}, aWorker(carries("readiness.k8s.io/before"), ownedBy("a", "readiness.k8s.io/before")), "remove a; add a; " + isOwned},
		"the gating taint of a refused rule stays":   {[]*v1alpha1.NodeReadinessRule{aRule("a", func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Key = "node-ready/unverified" })}, aWorker(carries("node-ready/unverified"), ownedBy("a", "node-ready/unverified")), ""},
		"another installation's verification is one": {[]*v1alpha1.NodeReadinessRule{aRule("a", asks(v1alpha1.ConditionRequirement{Type: "node-ready/Verified", RequiredStatus: "True"}))}, aWorker(reports("node-ready/Verified", "True"), carries(agentTaint)), "remove a"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := said(Next(Node{Node: c.node, Gating: ruleGating}, compiled(c.rules...), 0, ruleTime)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func twoConditions(r *v1alpha1.NodeReadinessRule) {
	r.Spec.Conditions = []v1alpha1.ConditionRequirement{{Type: "x", RequiredStatus: "True"}, {Type: "y", RequiredStatus: "True"}}
}

// A taint that is on the node already is adopted. The adoption is remembered at first and recorded later. The taint is
// removed whenever the node leaves the selector.
func TestATaintThatWasThereIsAdopted(t *testing.T) {
	rules, n := compiled(aRule("a")), aWorker(carries(agentTaint))
	first := Next(Node{Node: n}, rules, 0, ruleTime)
	if said(first) != "adopt a" || !first.Change.Empty() || !slices.Equal(first.Adopting, []string{"uid-a"}) || first.Wait != adoptCalm {
		t.Fatalf("%s, %v, %s", said(first), first.Adopting, first.Wait)
	}
	seen := Node{Node: n, Adopting: map[string]time.Time{"uid-a": ruleTime}}
	for after, want := range map[time.Duration]time.Duration{time.Second: 2 * time.Second, adoptCalm - 1: 1, adoptCalm: 0} {
		late := Next(seen, rules, 0, ruleTime.Add(after))
		if said(late) == "" != (want > 0) || late.Wait != want {
			t.Errorf("after %s: %s, %s", after, said(late), late.Wait)
		}
	}
	seen.LastChange = ruleTime.Add(5 * time.Second) // nodes go on joining
	for after, want := range map[time.Duration]time.Duration{5 * time.Second: 3 * time.Second, 8*time.Second - 1: 1, 8 * time.Second: 0} {
		if late := Next(seen, rules, 0, ruleTime.Add(after)); late.Wait != want {
			t.Errorf("nodes join, after %s: %s, %s", after, said(late), late.Wait)
		}
	}
	seen.LastChange = ruleTime.Add(9 * time.Second)
	if late := Next(seen, rules, 0, ruleTime.Add(9*time.Second)); late.Wait != adoptAfter-9*time.Second {
		t.Errorf("%s, %s", said(late), late.Wait)
	}
	late := Next(seen, rules, 0, ruleTime.Add(adoptAfter))
	if want := `adopt a; owned {"uid-a":"readiness.k8s.io/agent:NoSchedule"}`; said(late) != want || len(late.Change.Add)+len(late.Change.Remove) > 0 {
		t.Errorf("%s", said(late))
	}
	seen.Node = aWorker(elsewhere, carries(agentTaint))
	if left := Next(seen, rules, 0, ruleTime); said(left) != "remove a" {
		t.Errorf("%s", said(left))
	}
	seen.Node = aWorker(elsewhere, carries(agentTaint), ownedBy("b", agentTaint))
	others := func(r *v1alpha1.NodeReadinessRule) {
		r.Spec.NodeSelector.MatchLabels = map[string]string{"role": "other"}
	}
	if left := Next(seen, compiled(aRule("a"), aRule("b", others)), 0, ruleTime); said(left) != "" {
		t.Errorf("another rule's taint: %s", said(left))
	}
}

// The taint of a bootstrap-only rule may come back while the conditions do not hold. It is removed only if this process
// saw the node pass the rule, and nobody has removed the annotation since.
func TestATaintThatComesBackGoesWhereTheReleaseWasSeen(t *testing.T) {
	rules, passed := compiled(aRule("a", bootstrapOnly)), hasPassed("uid-a")
	ready, failed, back := reports("agent/Ready", "True"), reports("agent/Ready", "False"), carries(agentTaint)
	releasing := Next(Node{Node: aWorker(ready, back, ownedBy("a", agentTaint))}, rules, 0, ruleTime)
	found := Next(Node{Node: aWorker(ready, passed)}, rules, 0, ruleTime)
	for name, seen := range map[string][]string{"released": releasing.Released, "found released": found.Released} {
		if !slices.Equal(seen, []string{"uid-a"}) {
			t.Errorf("%s: %v", name, seen)
		}
	}
	others := ownedBy("b", agentTaint)
	const added = `add a; owned {"uid-a":"readiness.k8s.io/agent:NoSchedule"}`
	seen := []string{"uid-a"}
	for name, c := range map[string]struct {
		node           *corev1.Node
		released, next []string
		want           string
	}{
		"seen":                          {aWorker(failed, back, passed), seen, seen, "remove a"},
		"seen, the taint is not back":   {aWorker(failed, passed), seen, seen, ""},
		"seen, not registered":          {aWorker(unregistered, failed, back, passed), seen, seen, ""},
		"seen, another owns the taint":  {aWorker(failed, back, passed, others), seen, seen, "remove a; owned {}"},
		"not seen":                      {aWorker(failed, back, passed), nil, nil, ""},
		"not seen, without the taint":   {aWorker(failed, passed), nil, nil, ""},
		"another rule's release":        {aWorker(failed, back, passed), []string{"uid-b"}, nil, ""},
		"the annotation is removed":     {aWorker(failed, back, ownedBy("a", agentTaint)), seen, nil, ""},
		"the annotation and the taint":  {aWorker(failed), seen, nil, added},
		"conditions hold, as NRC left":  {aWorker(ready, back, passed), nil, nil, "remove a"},
		"conditions hold, as NRC wrote": {aWorker(ready, back, hasPassed("a")), nil, nil, "remove a"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Next(Node{Node: c.node, Gating: ruleGating, Released: c.released}, rules, 0, ruleTime)
			if got := said(plan); got != c.want || !slices.Equal(plan.Released, c.next) {
				t.Errorf("got  %s, %v\nwant %s, %v", got, plan.Released, c.want, c.next)
			}
		})
	}
}

// With rules.staleAfter, a condition that is no longer renewed counts as missing. A condition that was never renewed
// does not.
func TestAStaleConditionCountsAsMissing(t *testing.T) {
	rules, n := compiled(aRule("a")), aWorker(reports("agent/Ready", "True"))
	seen := Node{Node: n, Renewed: map[string]time.Time{"agent/Ready": ruleTime}}
	if p := Next(seen, rules, time.Minute, ruleTime.Add(20*time.Second)); said(p) != "" || p.Wait != 40*time.Second {
		t.Errorf("%s, %s", said(p), p.Wait)
	}
	if p := Next(seen, rules, time.Minute, ruleTime.Add(time.Minute)); !strings.HasPrefix(said(p), "add a") || !p.Evaluations[0].Missing {
		t.Errorf("%s", said(p))
	}
	if p := Next(seen, rules, 0, ruleTime.Add(time.Hour)); said(p) != "" {
		t.Errorf("without staleAfter: %s", said(p))
	}
	if p := Next(Node{Node: n}, rules, time.Minute, ruleTime.Add(time.Hour)); said(p) != "" {
		t.Errorf("never renewed: %s", said(p))
	}
}

func TestADryRunIsCountedInTheWordsOfNRC(t *testing.T) {
	rules := compiled(aRule("a", inDryRun))
	tally := DryRunTally{}
	for _, n := range []*corev1.Node{aWorker(), aWorker(carries(agentTaint)), aWorker(reports("agent/Ready", "True"), carries(agentTaint)), aWorker(reports("agent/Ready", "True"))} {
		p := Next(Node{Node: n}, rules, 0, ruleTime)
		if len(p.Evaluations) != 1 || p.Evaluations[0].State != Dry {
			t.Fatal(p.Evaluations)
		}
		tally.count(p.Evaluations[0], 1)
	}
	if r := tally.Results(); *r.AffectedNodes != 4 || *r.TaintsToAdd != 1 || *r.TaintsToRemove != 1 || *r.RiskyOperations != 2 ||
		r.Summary != "would add 1 taints, would remove 1 taints, 2 nodes have missing conditions" {
		b, _ := json.Marshal(r)
		t.Errorf("%s", b)
	}
	if none := (&DryRunTally{Affected: 3}).Results(); none.Summary != "No changes needed" {
		t.Error(none.Summary)
	}
}

// A missing condition is reported as Unknown, together with the value that it counts as.
func TestAMissingConditionIsShownAsUnknown(t *testing.T) {
	rules := compiled(aRule("a", asks(
		v1alpha1.ConditionRequirement{Type: "missing", RequiredStatus: "True", DefaultStatus: "False"},
		v1alpha1.ConditionRequirement{Type: "fine", RequiredStatus: "True", DefaultStatus: "True"},
		v1alpha1.ConditionRequirement{Type: "there", RequiredStatus: "True", DefaultStatus: "True"})))
	plan := Next(Node{Node: aWorker(reports("there", "False"))}, rules, 0, ruleTime)
	tally := Tally{}
	for _, e := range plan.Evaluations {
		tally.Count("n", e)
	}
	want := []v1alpha1.ConditionResult{
		{Type: "missing", CurrentStatus: "Unknown", RequiredStatus: "True", DefaultStatus: "False"},
		{Type: "fine", CurrentStatus: "Unknown", RequiredStatus: "True", DefaultStatus: "True"},
		{Type: "there", CurrentStatus: "False", RequiredStatus: "True", DefaultStatus: "True"}}
	if s := Status(&rules[0], v1alpha1.NodeReadinessRuleStatus{}, &tally, nil, ruleTime); len(s.NodeEvaluations) != 1 || !slices.Equal(s.NodeEvaluations[0].ConditionResults, want) {
		t.Errorf("%+v", s.NodeEvaluations)
	}
	if results := plan.Evaluations[0].Results; results[0].CurrentStatus != "False" || results[1].CurrentStatus != "True" {
		t.Errorf("they count as %+v", results)
	}
}

// However many nodes are held or failed, and however long their names and conditions are, the status stays small.
func TestARulesStatusIsBounded(t *testing.T) {
	const nodes = 5000
	tally, failed := &Tally{}, map[string]Failure{}
	results := make([]v1alpha1.ConditionResult, 32)
	for i := range results {
		results[i] = v1alpha1.ConditionResult{Type: strings.Repeat("c", 300) + strconv.Itoa(i), CurrentStatus: corev1.ConditionUnknown, RequiredStatus: corev1.ConditionTrue}
	}
	for name, of := range map[string][]v1alpha1.ConditionResult{"long": results, "short": results[:1], "none": nil} {
		for i := range nodes {
			node := fmt.Sprintf("%s-%d", strings.Repeat("n", 200), i)
			tally.Count(node, Evaluation{Rule: &Rule{}, State: Held, Results: of})
			failed[node] = Failure{Message: strings.Repeat("m", 5000), At: ruleTime}
		}
		for _, failures := range []map[string]Failure{nil, failed} {
			s := Status(&Rule{Generation: 1}, v1alpha1.NodeReadinessRuleStatus{}, tally, failures, ruleTime)
			b, err := json.Marshal(s)
			if err != nil || len(b) > 20<<10 || max(len(s.FailedNodes), len(s.NodeEvaluations), len(s.AppliedNodes)) > 100 {
				t.Errorf("%s: %d bytes, %d failed, %d evaluated, %d applied: %v", name, len(b), len(s.FailedNodes), len(s.NodeEvaluations), len(s.AppliedNodes), err)
			}
			if failures != nil && len(s.FailedNodes) == 0 || failures == nil && name != "long" && len(s.NodeEvaluations) == 0 {
				t.Errorf("%s: it says nothing", name)
			}
		}
	}
}

func TestConcern(t *testing.T) {
	elsewhere := func(n *corev1.Node) { n.Labels = map[string]string{"role": "other"} }
	owned := func(n *corev1.Node) {
		n.Annotations[marks.AnnotationRules] = `{"gone":"readiness.k8s.io/gone:NoSchedule"}`
	}
	gates := func(r *v1alpha1.NodeReadinessRule) { r.Spec.Taint.Key = "node-ready/unverified" } // refused
	for name, test := range map[string]struct {
		node  *corev1.Node
		rules []Rule
		want  bool
	}{
		"selected":                     {aWorker(), compiled(aRule("agent")), true},
		"selected, no finalizer yet":   {aWorker(), compiled(aRule("agent", unfinalized)), true},
		"not selected":                 {aWorker(elsewhere), compiled(aRule("agent")), false},
		"carries the taint":            {aWorker(elsewhere, carries("readiness.k8s.io/agent")), compiled(aRule("agent")), true},
		"carries a stranger's":         {aWorker(elsewhere, carries("readiness.k8s.io/other")), compiled(aRule("agent")), false},
		"owned by a rule that is gone": {aWorker(elsewhere, owned), compiled(aRule("agent")), true},
		"selected, the rule goes":      {aWorker(), compiled(aRule("agent", isDeleted)), false},
		"tainted, the rule goes":       {aWorker(carries("readiness.k8s.io/agent")), compiled(aRule("agent", isDeleted)), true},
		"dry run":                      {aWorker(carries("readiness.k8s.io/agent")), compiled(aRule("agent", inDryRun)), false},
		"refused":                      {aWorker(carries("node-ready/unverified")), compiled(aRule("agent", gates)), false},
		"no rules":                     {aWorker(carries("readiness.k8s.io/agent"), owned), nil, false},
	} {
		if got := AnyConcerns(test.node, test.rules); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
