package effects

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// agentReady is the condition that the rules ask for.
const agentReady = "agent/Ready"

// ruling is what a leader knows of rules.
type ruling struct {
	l          *leader
	rules      *rules.Rules
	lock       resourcelock.Interface
	reconciler *rules.Reconciler
	nodes      map[string]*corev1.Node // as they were shown last
}

func (l *leader) rules(live, cache client.Reader, writer client.Client) *ruling {
	ignore := func(string) {} // every pass looks at every node and rule
	// Each world has a role of its own, and nothing of the node-readiness-controller's.
	served := &rules.Rules{Config: config.Rules{TakeOver: true, StaleAfter: metav1.Duration{Duration: l.staleAfter}},
		Gating: l.w.cfg.Vocabulary().Gating, Nodes: cache, Now: l.w.clock.Now,
		Counters: rules.NewCounters(), Events: l.w, WakeNode: ignore, WakeRule: ignore}
	l.nodes.Rules = served
	role := &rules.Role{Rules: served, LeaseInterface: leases{typed.CoordinationV1().Leases(l.w.ns), l}, Identity: "installation"}
	reconciler := &rules.Reconciler{Rules: served, Live: live, Writer: writer}
	return &ruling{l: l, rules: served, reconciler: reconciler, nodes: map[string]*corev1.Node{}, lock: role.Lock()}
}

// renew renews the role, as the elector does.
func (r *ruling) renew() error {
	record := resourcelock.LeaderElectionRecord{HolderIdentity: r.lock.Identity(), LeaseDurationSeconds: 45,
		RenewTime: metav1.Now()}
	_, _, err := r.lock.Get(r.l.w.ctx)
	if apierrors.IsNotFound(err) {
		return r.lock.Create(r.l.w.ctx, record)
	}
	if err != nil {
		return err
	}
	return r.lock.Update(r.l.w.ctx, record)
}

// show delivers what watches would.
func (r *ruling) show(nodes []corev1.Node) {
	w := r.l.w
	w.Helper()
	if err := r.renew(); err != nil && !r.l.noLease {
		w.Fatal(err)
	}
	var list v1alpha1.NodeReadinessRuleList
	w.must(api.List(w.ctx, &list, client.MatchingLabels{worldLabel: w.ns}))
	var all []*v1alpha1.NodeReadinessRule
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	w.must(r.rules.Replace(w.ctx, all))
	for i := range nodes {
		r.rules.ObserveNode(r.nodes[nodes[i].Name], &nodes[i])
		r.nodes[nodes[i].Name] = &nodes[i]
	}
}

// rule makes a continuous rule for the nodes of the world: it asks for agentReady.
func (w *world) rule(change ...func(*v1alpha1.NodeReadinessRule)) {
	w.Helper()
	name := w.ns + "-r"
	r := &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{worldLabel: w.ns}}, Spec: v1alpha1.NodeReadinessRuleSpec{
		Conditions:      []v1alpha1.ConditionRequirement{{Type: agentReady, RequiredStatus: corev1.ConditionTrue}},
		EnforcementMode: v1alpha1.ModeContinuous,
		Taint:           corev1.Taint{Key: marks.RuleTaintPrefix + name, Effect: corev1.TaintEffectNoSchedule},
		NodeSelector:    metav1.LabelSelector{MatchLabels: map[string]string{worldLabel: w.ns}},
	}}
	for _, f := range change {
		f(r)
	}
	w.create(r)
	w.ruleNames = append(w.ruleNames, name)
}

func bootstrapOnly(r *v1alpha1.NodeReadinessRule) {
	r.Spec.EnforcementMode = v1alpha1.ModeBootstrapOnly
}

func inPool(r *v1alpha1.NodeReadinessRule) { r.Spec.NodeSelector.MatchLabels["pool"] = "gated" }

// bornHeld is a node that registers with the taint of the rule.
func (w *world) bornHeld() func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: marks.RuleTaintPrefix + w.ns + "-r", Effect: corev1.TaintEffectNoSchedule})
	}
}

// reports plays an agent, or a kubelet that was restarted on a node that was.
func reports(status corev1.ConditionStatus, boot string) func(*world, string) {
	return func(w *world, node string) {
		w.Helper()
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		patch := fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":%q},"conditions":[{"type":%q,"status":%q,"reason":"Agent"}]}}`, boot, agentReady, status)
		w.must(api.Status().Patch(w.ctx, n, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
	}
}

func labelled(key, value string) func(*world, string) {
	return func(w *world, node string) {
		w.Helper()
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		w.must(api.Patch(w.ctx, n, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value))))
	}
}

func deletesRule(w *world, _ string) {
	w.Helper()
	w.must(api.Delete(w.ctx, &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: w.ruleNames[0]}}))
}

// EmitRule counts an event on a rule.
func (r *referee) EmitRule(o *v1alpha1.NodeReadinessRule, at time.Time, e decide.Event) {
	r.Emit(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}, at, e)
}

// ruled are the taints of rules that a node was last seen with, and how often one was put on and taken off.
type ruled struct {
	taints         []string
	added, removed int
}

func ruleTaints(n *corev1.Node) (keys []string) {
	for _, t := range n.Spec.Taints {
		if strings.HasPrefix(t.Key, marks.RuleTaintPrefix) {
			keys = append(keys, t.Key)
		}
	}
	return keys
}

// see takes the taints that a node is born with.
func (r *referee) see(n *corev1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ruled == nil {
		r.ruled = map[string]ruled{}
	}
	r.ruled[n.Name] = ruled{taints: ruleTaints(n)}
}

// patches carries a patch out, and counts the taints of rules that it puts on and takes off. What a rule owns is written in the
// patch that puts its taint on.
func (r *referee) patches(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if err := api.Patch(ctx, o, p, opts...); err != nil {
		return err
	}
	n, ok := o.(*corev1.Node)
	if !ok || slices.Contains((&client.PatchOptions{}).ApplyOptions(opts).DryRun, metav1.DryRunAll) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.ruled[n.Name]
	now := ruleTaints(n)
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

// rulesOn describes what the rules came to: on the node, "taint R by R" and "completed R"; of each rule, whether it is there, with
// our finalizer, the nodes that its status calls held, and those that it calls failed.
func (w *world) rulesOn(n *corev1.Node) (what string, added, removed int) {
	w.Helper()
	if len(w.ruleNames) == 0 || n == nil {
		return "", 0, 0
	}
	var said []string
	names := map[string]string{}
	for _, name := range w.ruleNames {
		r := &v1alpha1.NodeReadinessRule{}
		short := strings.TrimPrefix(name, w.ns+"-")
		err := api.Get(w.ctx, client.ObjectKey{Name: name}, r)
		if apierrors.IsNotFound(err) {
			said = append(said, short+" gone")
			continue
		}
		w.must(err)
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
	for _, key := range ruleTaints(n) {
		owner := ""
		for _, uid := range by[key] {
			owner += " by " + names[uid]
		}
		delete(by, key)
		said = append(said, "taint "+strings.TrimPrefix(key, marks.RuleTaintPrefix+w.ns+"-")+owner)
	}
	if len(by) > 0 {
		said = append(said, fmt.Sprintf("owned and not there: %v", by))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(said, ", "), w.ruled[n.Name].added, w.ruled[n.Name].removed
}

func rulePaths() map[string]path {
	agent := func(statuses ...corev1.ConditionStatus) (steps []func(*world, string)) {
		for i, s := range statuses {
			steps = append(steps, reports(s, fmt.Sprint("boot-", i)))
		}
		return steps
	}
	untouched := result{Record: "  held= verified=false"}
	with := func(r result, rules string, added, removed int) result {
		r.Rules, r.Added, r.Removed = rules, added, removed
		return r
	}
	return map[string]path{
		"rule holds, releases and holds": {
			begin: func(w *world) *corev1.Node { w.rule(); return w.node("n", untainted) },
			then:  agent("True", "False"),
			writes: []string{"patch NodeReadinessRule", "patch Node", "patch NodeReadinessRule/status",
				"patch Node", "patch NodeReadinessRule/status", "patch Node", "patch NodeReadinessRule/status"},
			want:   with(untouched, "r holds 1 fails 0, taint r by r", 2, 1),
			events: map[decide.Reason]int{rule.EventTaintAdded: 2, rule.EventTaintRemoved: 1}},

		"bootstrap-only rule is passed": {
			begin:  func(w *world) *corev1.Node { w.rule(bootstrapOnly); return w.node("n", untainted) },
			then:   agent("True", "False"),
			want:   with(untouched, "r holds 0 fails 0, completed r", 1, 1),
			events: map[decide.Reason]int{rule.EventTaintAdded: 1, rule.EventTaintRemoved: 1}},

		"rule adopts": {
			begin: func(w *world) *corev1.Node {
				w.rule(inPool)
				return w.node("n", untainted, w.bornHeld(), func(n *corev1.Node) { n.Labels["pool"] = "gated" })
			},
			want:   with(untouched, "r holds 1 fails 0, taint r by r", 0, 0),
			events: map[decide.Reason]int{rule.EventTaintAdopted: 1}},

		"node leaves the selector": {
			begin: func(w *world) *corev1.Node {
				w.rule(inPool)
				return w.node("n", untainted, w.bornHeld(), func(n *corev1.Node) { n.Labels["pool"] = "gated" })
			},
			then:   []func(*world, string){labelled("pool", "free")},
			want:   with(untouched, "r holds 0 fails 0", 0, 1),
			events: map[decide.Reason]int{rule.EventTaintRemoved: 1}},

		"rule is deleted": {
			begin:  func(w *world) *corev1.Node { w.rule(); return w.node("n", untainted) },
			then:   []func(*world, string){deletesRule},
			want:   with(untouched, "r gone", 1, 1),
			events: map[decide.Reason]int{rule.EventTaintAdded: 1, rule.EventTaintRemoved: 1}},

		"rule and verification": {
			begin: func(w *world) *corev1.Node {
				w.rule(func(r *v1alpha1.NodeReadinessRule) { r.Spec.Conditions[0].Type = string(marks.ConditionType) })
				return w.node("n")
			},
			want:   with(result{Labelled: true, Record: "passed  held= verified=true", Sequence: 1, Condition: "True ChecksPassed"}, "r holds 0 fails 0", 1, 1),
			events: map[decide.Reason]int{decide.EventPassed: 1, rule.EventTaintAdded: 1, rule.EventTaintRemoved: 1}},
	}
}

// A node reboots between the decision that it has passed a bootstrap-only rule and the write of that: the write is refused, and the
// node is held until it is ready in its present boot. A reboot after the write changes nothing.
func TestBootstrapCompletionAndAReboot(t *testing.T) {
	t.Parallel()
	w := begin(t, "")
	w.rule(bootstrapOnly)
	n := w.node("n", untainted, w.bornHeld())
	reboot, reboots := false, 0
	l := w.leads(func(l *leader) {
		l.before = func(write string) {
			if write == "patch Node" && reboot {
				reboot = false
				reboots++
				reports("Unknown", fmt.Sprint("boot-", reboots))(w, n.Name)
			}
		}
	})
	l.drive()
	rules := func(want string, removed int) {
		t.Helper()
		have, _ := w.get(n.Name)
		if got, added, off := w.rulesOn(have); got != want || added != 0 || off != removed {
			b, _ := json.Marshal(have.Annotations)
			t.Fatalf("after %d reboots: %s, %d put on, %d taken off, %s; want %s, %d taken off", reboots, got, added, off, b, want, removed)
		}
	}
	held := "r holds 1 fails 0, taint r by r"
	rules(held, 0)
	for range 3 {
		reboot = true
		reports("True", fmt.Sprint("boot-", reboots))(w, n.Name)
		l.drive()
		rules(held, 0)
	}
	if reboots != 3 || len(l.errs) > 0 {
		t.Errorf("%d reboots, %v", reboots, l.errs)
	}
	reports("True", "boot-3")(w, n.Name)
	l.drive()
	completed := "r holds 0 fails 0, completed r"
	rules(completed, 1)
	reports("False", "boot-4")(w, n.Name)
	l.drive()
	w.leads().drive()
	rules(completed, 1)
}

// A condition whose heartbeat was seen renewed, and stops, counts as missing after rules.staleAfter; one that was never renewed
// does not.
func TestStaleAfter(t *testing.T) {
	t.Parallel()
	w := begin(t, "")
	w.rule()
	renewed, never := w.node("renewed", untainted), w.node("never", untainted)
	report := func(node string) {
		t.Helper()
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True","reason":"Agent","lastHeartbeatTime":%q}]}}`, agentReady, w.clock.Now().UTC().Format(time.RFC3339))
		w.must(api.Status().Patch(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
	}
	l := w.leads(func(l *leader) { l.staleAfter = 3 * time.Minute })
	held := func() (names []string) {
		t.Helper()
		for range 4 {
			l.turn()
		}
		for _, n := range []*corev1.Node{renewed, never} {
			if now, _ := w.get(n.Name); len(ruleTaints(now)) > 0 {
				names = append(names, strings.TrimPrefix(n.Name, w.ns+"-"))
			}
		}
		return names
	}
	report(never.Name)
	for range 3 {
		report(renewed.Name)
		if h := held(); len(h) > 0 {
			t.Fatalf("held while it is renewed: %v", h)
		}
		w.clock.advance(2 * time.Minute)
	}
	if h := held(); len(h) > 0 {
		t.Fatalf("held too soon: %v", h)
	}
	w.clock.advance(time.Minute + time.Second)
	if h := held(); !slices.Equal(h, []string{"renewed"}) {
		t.Fatalf("held: %v", h)
	}
	report(renewed.Name)
	if h := held(); len(h) > 0 {
		t.Errorf("held although it is back: %v", h)
	}
}
