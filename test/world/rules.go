package world

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules"
)

// AgentReady is the condition that the rules ask for.
const AgentReady = "agent/Ready"

// ruling is what a leader knows of rules.
type ruling struct {
	l          *Leader
	rules      *rules.Rules
	reconciler *rules.Reconciler
	nodes      map[string]*corev1.Node // as they were shown last
}

func (l *Leader) rules(live, cache client.Reader, writer client.Client) *ruling {
	ignore := func(string) {} // every pass looks at every node and rule
	// A world has nothing of the node-readiness-controller's.
	served := &rules.Rules{Config: config.Rules{StaleAfter: metav1.Duration{Duration: l.StaleAfter}},
		Gating: l.W.Config.Vocabulary().Gating, Nodes: cache, Now: l.W.Clock.Now,
		Counters: rules.NewCounters(), Events: l.W, EnqueueNode: ignore, EnqueueRule: ignore}
	l.Nodes.Rules = served
	reconciler := &rules.Reconciler{Rules: served, Live: live, Writer: writer}
	return &ruling{l: l, rules: served, reconciler: reconciler, nodes: map[string]*corev1.Node{}}
}

// show delivers what watches would.
func (r *ruling) show(nodes []corev1.Node) {
	w := r.l.W
	w.Helper()
	var list v1alpha1.NodeReadinessRuleList
	w.Must(w.API.List(w.Ctx, &list, client.MatchingLabels{WorldLabel: w.Namespace}))
	var all []*v1alpha1.NodeReadinessRule
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	w.Must(r.rules.Replace(w.Ctx, all))
	for i := range nodes {
		r.rules.ObserveNode(r.nodes[nodes[i].Name], &nodes[i])
		r.nodes[nodes[i].Name] = &nodes[i]
	}
}

// Rule makes a continuous rule for the nodes of the world: it asks for agentReady.
func (w *World) Rule(change ...func(*v1alpha1.NodeReadinessRule)) {
	w.Helper()
	name := w.Namespace + "-r"
	r := &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{WorldLabel: w.Namespace}}, Spec: v1alpha1.NodeReadinessRuleSpec{
		Conditions:      []v1alpha1.ConditionRequirement{{Type: AgentReady, RequiredStatus: corev1.ConditionTrue}},
		EnforcementMode: v1alpha1.ModeContinuous,
		Taint:           corev1.Taint{Key: marks.RuleTaintPrefix + name, Effect: corev1.TaintEffectNoSchedule},
		NodeSelector:    metav1.LabelSelector{MatchLabels: map[string]string{WorldLabel: w.Namespace}},
	}}
	for _, f := range change {
		f(r)
	}
	w.Create(r)
	w.RuleNames = append(w.RuleNames, name)
}

// BootstrapOnly makes the rule hold nodes once.
func BootstrapOnly(r *v1alpha1.NodeReadinessRule) {
	r.Spec.EnforcementMode = v1alpha1.ModeBootstrapOnly
}

// InPool makes the rule select the nodes of a pool.
func InPool(r *v1alpha1.NodeReadinessRule) { r.Spec.NodeSelector.MatchLabels["pool"] = "gated" }

// RegistersWithRuleTaint is a node that registers with the taint of the rule.
func (w *World) RegistersWithRuleTaint() func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: marks.RuleTaintPrefix + w.Namespace + "-r", Effect: corev1.TaintEffectNoSchedule})
	}
}

// AgentReports plays an agent, or a kubelet that was restarted on a node that was.
func AgentReports(status corev1.ConditionStatus, boot string) func(*World, string) {
	return func(w *World, node string) {
		w.Helper()
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		patch := fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":%q},"conditions":[{"type":%q,"status":%q,"reason":"Agent"}]}}`, boot, AgentReady, status)
		w.Must(w.API.Status().Patch(w.Ctx, n, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
	}
}

// Labels labels a node.
func Labels(key, value string) func(*World, string) {
	return func(w *World, node string) {
		w.Helper()
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		w.Must(w.API.Patch(w.Ctx, n, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value))))
	}
}

// EmitRule counts an event on a rule.
func (r *Referee) EmitRule(o *v1alpha1.NodeReadinessRule, at time.Time, e decide.Event) {
	r.Emit(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}, at, e)
}

// ruled are the taints of rules that a node was last seen with, and how often one was put on and taken off.
type ruled struct {
	taints         []string
	added, removed int
}

// RuleTaints are the keys of the taints of rules on the node.
func RuleTaints(n *corev1.Node) (keys []string) {
	for _, t := range n.Spec.Taints {
		if strings.HasPrefix(t.Key, marks.RuleTaintPrefix) {
			keys = append(keys, t.Key)
		}
	}
	return keys
}

// see takes the taints that a node is created with.
func (r *Referee) see(n *corev1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ruled == nil {
		r.ruled = map[string]ruled{}
	}
	r.ruled[n.Name] = ruled{taints: RuleTaints(n)}
}

// patches carries a patch out, and counts the taints of rules that it puts on and takes off. What a rule owns is written in the
// patch that puts its taint on.
func (r *Referee) patches(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if err := r.world.API.Patch(ctx, o, p, opts...); err != nil {
		return err
	}
	if kind(o) != "Node" || slices.Contains((&client.PatchOptions{}).ApplyOptions(opts).DryRun, metav1.DryRunAll) {
		return nil
	}
	n := &corev1.Node{} // the answer is metadata
	if err := r.world.API.Get(ctx, client.ObjectKeyFromObject(o), n); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.ruled[n.Name]
	now := RuleTaints(n)
	for _, key := range now {
		if slices.Contains(seen.taints, key) {
			continue
		}
		seen.added++
		if owner := owners(n)[key]; len(owner) != 1 {
			r.world.Errorf("taint %s of %s is put on, and owned by %q", key, n.Name, owner)
		}
	}
	for _, key := range seen.taints {
		if !slices.Contains(now, key) {
			seen.removed++
		}
	}
	seen.taints = now
	r.ruled[n.Name] = seen
	return nil
}

// owners are the UIDs of the rules that own each taint, by its key.
func owners(n *corev1.Node) map[string][]string {
	by := map[string][]string{}
	for uid, id := range marks.OwnedOn(n) {
		by[id.Key] = append(by[id.Key], uid)
	}
	return by
}

// RulesOn describes the effect of the rules. For the node, that is "taint R by R" and "completed R". For each rule, it
// is whether it exists, with our finalizer, and the nodes that its status reports as held and as failed.
func (w *World) RulesOn(n *corev1.Node) (what string, added, removed int) {
	w.Helper()
	if len(w.RuleNames) == 0 || n == nil {
		return "", 0, 0
	}
	var said []string
	names := map[string]string{}
	for _, name := range w.RuleNames {
		r := &v1alpha1.NodeReadinessRule{}
		short := strings.TrimPrefix(name, w.Namespace+"-")
		err := w.API.Get(w.Ctx, client.ObjectKey{Name: name}, r)
		if apierrors.IsNotFound(err) {
			said = append(said, short+" gone")
			continue
		}
		w.Must(err)
		names[string(r.UID)] = short
		if !slices.Contains(r.Finalizers, v1alpha1.Finalizer) || r.Status.ObservedGeneration != r.Generation {
			said = append(said, fmt.Sprintf("%s %v of generation %d", short, r.Finalizers, r.Status.ObservedGeneration))
		}
		said = append(said, fmt.Sprintf("%s holds %d fails %d", short, len(r.Status.AppliedNodes), len(r.Status.FailedNodes)))
		if n.Annotations["readiness.k8s.io/bootstrap-completed-"+string(r.UID)] == `{"rule-name":"`+name+`"}` {
			said = append(said, "completed "+short)
		}
	}
	by := owners(n)
	for _, key := range RuleTaints(n) {
		owner := ""
		for _, uid := range by[key] {
			owner += " by " + names[uid]
		}
		delete(by, key)
		said = append(said, "taint "+strings.TrimPrefix(key, marks.RuleTaintPrefix+w.Namespace+"-")+owner)
	}
	if len(by) > 0 {
		said = append(said, fmt.Sprintf("owned and not there: %v", by))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(said, ", "), w.ruled[n.Name].added, w.ruled[n.Name].removed
}
