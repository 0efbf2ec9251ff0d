package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
	"github.com/kube-node-ready/kube-node-ready/test/admission/cases"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

const (
	definition = chart + "/files/nodereadinessrules.yaml"
	// gated is a configuration with a gating taint that has the prefix of rules.
	gated = "rules: {enabled: true}\nnodeManagement: {taints: [{key: readiness.k8s.io/gate, effect: NoSchedule}]}"
	gate  = "readiness.k8s.io/gate=:NoSchedule"
)

// ruleCases are rules, and which of the nodes below each taints at its creation: worker, bare.
var ruleCases = []struct {
	name, spec string
	want       string
}{
	{"labels", "nodeSelector: {matchLabels: {role: worker}}", "worker"},
	{"other-labels", "nodeSelector: {matchLabels: {role: other}}", ""},
	{"in", "nodeSelector: {matchExpressions: [{key: role, operator: In, values: [other, worker]}]}", "worker"},
	{"in-others", "nodeSelector: {matchExpressions: [{key: role, operator: In, values: [other]}]}", ""},
	{"not-in-others", "nodeSelector: {matchExpressions: [{key: role, operator: NotIn, values: [other]}]}", "worker bare"},
	{"not-in", "nodeSelector: {matchExpressions: [{key: role, operator: NotIn, values: [worker]}]}", "bare"},
	{"exists", "nodeSelector: {matchExpressions: [{key: role, operator: Exists}]}", "worker"},
	{"exists-not", "nodeSelector: {matchExpressions: [{key: role, operator: DoesNotExist}]}", "bare"},
	{"both", "nodeSelector: {matchLabels: {role: worker}, matchExpressions: [{key: gpu, operator: DoesNotExist}]}", "worker"},
	{"both-not", "nodeSelector: {matchLabels: {role: worker}, matchExpressions: [{key: gpu, operator: Exists}]}", ""},
	{"bootstrap", "enforcementMode: bootstrap-only", "worker"},
	{"value", "taint: {key: readiness.k8s.io/value, value: wait, effect: NoExecute}", "worker"},
	{"autoscaler", "taint: {key: startup-taint.cluster-autoscaler.kubernetes.io/x, effect: NoSchedule}", "worker"},
	{"met", "conditions: [{type: Ready, requiredStatus: 'False'}]", ""},
	{"met-by-absence", "conditions: [{type: none, requiredStatus: Unknown}]", ""},
	{"met-by-default", "conditions: [{type: none, requiredStatus: 'True', defaultStatus: 'True'}]", ""},
	{"not-met", "conditions: [{type: Ready, requiredStatus: 'False'}, {type: none, requiredStatus: 'True'}]", "worker"},
	{"any-met", "{conditionPolicy: anyOf, conditions: [{type: Ready, requiredStatus: 'False'}, {type: none, requiredStatus: 'True'}]}", ""},
	{"none-of-any", "{conditionPolicy: anyOf, conditions: [{type: Ready, requiredStatus: 'True'}, {type: none, requiredStatus: 'True'}]}", "worker"},
	{"brought", "taint: {key: example.com/brought, effect: NoSchedule}", ""},
	{"dry-run", "dryRun: true", ""},
	{"terminating", "{}", ""},
	{"without-finalizer", "{}", ""},
	{"refused-selects-all", "nodeSelector: {}", ""},
	{"refused-operator", "nodeSelector: {matchExpressions: [{key: role, operator: Near}]}", ""},
	{"refused-values", "nodeSelector: {matchExpressions: [{key: gpu, operator: DoesNotExist, values: [a]}]}", ""},
	{"refused-no-values", "nodeSelector: {matchExpressions: [{key: gpu, operator: NotIn}]}", ""},
	{"refused-label", "nodeSelector: {matchExpressions: [{key: 'not a label', operator: DoesNotExist}]}", ""},
	{"refused-key", "taint: {key: example.com/x, effect: NoSchedule}", ""},
	{"refused-slashes", "taint: {key: readiness.k8s.io/a/b, effect: NoSchedule}", ""},
	{"refused-gate", "taint: {key: readiness.k8s.io/gate, effect: NoSchedule}", ""},
	{"refused-default", "{enforcementMode: bootstrap-only, conditions: [{type: x, requiredStatus: 'True', defaultStatus: 'False'}]}", ""},
	{"refused-any", "{enforcementMode: bootstrap-only, conditionPolicy: anyOf}", ""},
}

// admitted is a client that knows rules.
func admitted(t *testing.T) client.Client {
	t.Helper()
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	config := control.Config()
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// define installs the chart's definition of rules, and takes it away with the test. A lax one admits whatever a rule
// says, as somebody else's may.
func define(t *testing.T, lax bool) {
	t.Helper()
	content, err := os.ReadFile(definition)
	if err != nil {
		t.Fatal(err)
	}
	var crd map[string]any
	if err := yaml.Unmarshal(content, &crd); err != nil {
		t.Fatal(err)
	}
	if lax {
		loosen(crd)
	}
	if content, err = yaml.Marshal(crd); err == nil {
		err = install.Apply(t.Context(), control, content)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := admitted(t)
	t.Cleanup(func() {
		var all v1alpha1.NodeReadinessRuleList
		_ = c.List(context.Background(), &all)
		for i := range all.Items {
			_ = c.Patch(context.Background(), &all.Items[i], client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		}
		out, err := exec.Command(path(t, "kubectl"), "--kubeconfig", control.Kubeconfig(), "delete", "crd", "nodereadinessrules.readiness.node.x-k8s.io").CombinedOutput()
		if err != nil {
			t.Errorf("the definition stays: %v: %s", err, out)
		}
	})
	eventually(t, "rules are served", func() error { return c.List(t.Context(), &v1alpha1.NodeReadinessRuleList{}) })
}

// loosen drops what a schema validates by CEL.
func loosen(in any) {
	switch in := in.(type) {
	case map[string]any:
		delete(in, "x-kubernetes-validations")
		for _, value := range in {
			loosen(value)
		}
	case []any:
		for _, value := range in {
			loosen(value)
		}
	}
}

// aRule makes a rule for nodes of role worker whose condition nobody reports, but for what the spec says.
func aRule(t *testing.T, name, spec string) *v1alpha1.NodeReadinessRule {
	t.Helper()
	r := &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1alpha1.Finalizer}}}
	said := map[string]any{}
	if err := yaml.Unmarshal([]byte(spec), &said); err != nil {
		t.Fatal(err)
	}
	for field, value := range map[string]any{
		"enforcementMode": "continuous", "conditions": []any{map[string]any{"type": "none", "requiredStatus": "True"}},
		"taint":        map[string]any{"key": "readiness.k8s.io/" + name, "effect": "NoSchedule"},
		"nodeSelector": map[string]any{"matchLabels": map[string]any{"role": "worker"}},
	} {
		if _, ok := said[field]; !ok {
			said[field] = value
		}
	}
	content, err := json.Marshal(said)
	if err == nil {
		err = json.Unmarshal(content, &r.Spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// asKubelet creates a node as its kubelet does, and returns what the API server made of it.
func asKubelet(ctx context.Context, n *corev1.Node, options ...client.CreateOption) error {
	config := control.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + n.Name, Groups: []string{"system:nodes", "system:authenticated"}}
	c, err := kubernetes.NewForConfig(config) // which, unlike a client of a scheme, asks for no discovery
	if err != nil {
		return err
	}
	o := (&client.CreateOptions{}).ApplyOptions(options)
	created, err := c.CoreV1().Nodes().Create(ctx, n, *o.AsCreateOptions())
	if err == nil {
		created.DeepCopyInto(n)
	}
	return err
}

// newNode makes a node whose Ready is False. Only one that is a worker is labelled.
func newNode(name string, worker bool, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	if worker {
		n.Labels = map[string]string{"role": "worker"}
	}
	for _, f := range change {
		f(n)
	}
	return n
}

// taintsOf are a node's, sorted: rules come in no order.
func taintsOf(n *corev1.Node) []string {
	var all []string
	for _, t := range n.Spec.Taints {
		all = append(all, cases.String(t))
	}
	return slices.Sorted(slices.Values(all))
}

// A rule taints a node at its creation where the controller would right after, and writes who owns the taint in the
// same step. One that is refused, in dry run, on its way out or without a finalizer does not; the gating taint is
// there whatever rules say.
func TestRulesOnCreation(t *testing.T) {
	for mode, values := range map[string]func(*testing.T) (func(*installation), []string){
		"policy": func(*testing.T) (func(*installation), []string) { return func(*installation) {}, []string{policyMode} },
		"webhook": func(t *testing.T) (func(*installation), []string) {
			s := serve(t)
			return func(i *installation) { s.set(i.replica(t, "hook-rules").port) }, append(s.values(), webhookMode)
		},
	} {
		t.Run(mode, func(t *testing.T) {
			define(t, true)
			c := admitted(t)
			standBack(t, c) // the controller of the webhook would change rules and nodes
			start, flags := values(t)
			start(setup(t, gated, flags...))
			want := map[string]map[string]marks.TaintID{"worker": {}, "bare": {}}
			var taints = map[string][]string{"worker": {gate}, "bare": {gate}}
			for _, rule := range ruleCases {
				r := aRule(t, rule.name, rule.spec)
				if rule.name == "without-finalizer" {
					r.Finalizers = nil
				}
				if err := c.Create(t.Context(), r); err != nil {
					t.Fatalf("%s: %v", rule.name, err)
				}
				if rule.name == "terminating" {
					if err := c.Delete(t.Context(), r); err != nil {
						t.Fatal(err)
					}
				}
				for _, on := range strings.Fields(rule.want) {
					want[on][string(r.UID)] = marks.TaintIDOf(r.Spec.Taint)
					taints[on] = append(taints[on], cases.String(r.Spec.Taint))
				}
			}
			shows := func(kind, name string, brings map[string]marks.TaintID, change ...func(*corev1.Node)) func() error {
				return func() error {
					n := newNode(name, kind == "worker", change...)
					expected := slices.Clone(taints[kind])
					for _, taint := range n.Spec.Taints {
						if s := cases.String(taint); !slices.Contains(expected, s) {
							expected = append(expected, s)
						}
					}
					slices.Sort(expected)
					owned := maps.Clone(want[kind])
					maps.Copy(owned, brings)
					if err := asKubelet(t.Context(), n, client.DryRunAll); err != nil {
						return err
					}
					if got := taintsOf(n); !slices.Equal(got, expected) {
						return fmt.Errorf("taints\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(expected, "\n"))
					}
					if got := map[string]marks.TaintID(marks.OwnedOn(n)); !maps.Equal(got, owned) {
						return fmt.Errorf("owners %v, want %v", got, owned)
					}
					return nil
				}
			}
			eventually(t, "a worker gets what rules ask for", shows("worker", "w", nil))
			foreign := func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "example.com/foreign", Effect: "NoSchedule"})
			}
			annotated := func(value string) func(*corev1.Node) {
				return func(n *corev1.Node) {
					n.Annotations = map[string]string{"a": "b", marks.AnnotationRules: value, "readiness.k8s.io/bootstrap-completed-bootstrap": "forged"}
				}
			}
			for name, check := range map[string]func() error{
				"bare":    shows("bare", "b", nil),
				"foreign": shows("worker", "w", nil, foreign),
				"forged": shows("worker", "w", map[string]marks.TaintID{"u": {Key: "example.com/foreign", Effect: "NoSchedule"}}, foreign,
					annotated(`{"u":"example.com/foreign:NoSchedule"}`)),
				"garbage": shows("worker", "w", nil, annotated(`{]`)),
				"empty":   shows("worker", "w", nil, annotated(``)),
			} {
				if err := check(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			brought := newNode("brings", true, func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "readiness.k8s.io/value", Value: "mine", Effect: "NoExecute"}}
			})
			if err := asKubelet(t.Context(), brought, client.DryRunAll); err != nil || !slices.Contains(taintsOf(brought), "readiness.k8s.io/value=mine:NoExecute") ||
				len(brought.Spec.Taints) != len(taints["worker"]) {
				t.Errorf("a taint that the node brings: %v (%v)", taintsOf(brought), err)
			}
		})
	}
}

// standBack has controllers leave rules to another one, which renews its Lease for as long as the test runs.
func standBack(t *testing.T, c client.Client) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: rule.NRCLease}}
	if err := c.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
			_ = c.Update(ctx, lease) // until the test ends
		}, time.Second)
	})
	t.Cleanup(func() {
		stop()
		all.Wait()
		_ = c.Delete(context.Background(), lease)
	})
}

// Each node is created at once and with the gating taint, whatever the state of the definition of rules. The definition
// is missing, is just being installed with twenty rules that the API server does not know yet, or has been removed.
func TestRulesThatAreNotThereKeepNoNodeOut(t *testing.T) {
	setup(t, gated, policyMode)
	inForce(t, cases.Group{Name: "gated", Cases: []cases.Case{{Name: "plain", Want: []string{gate}}}})
	creates := func(name string) *corev1.Node {
		t.Helper()
		n, began := newNode(name, true), time.Now()
		if err := asKubelet(t.Context(), n, client.DryRunAll); err != nil {
			t.Fatalf("%s is not created: %v", name, err)
		}
		// The API server waits a second at most for its list of rules.
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the creation of %s took %s", name, took)
		}
		if !slices.Contains(taintsOf(n), gate) {
			t.Fatalf("%s came out with %v, and without the gating taint", name, taintsOf(n))
		}
		return n
	}
	// Few, since the longer the definition is missing, the less often the API server looks for it.
	for i := range 5 {
		if n := creates(fmt.Sprint("undefined-", i)); len(n.Spec.Taints) != 1 {
			t.Errorf("there is no rule, and %v", taintsOf(n))
		}
	}
	t.Run("defined", func(t *testing.T) {
		define(t, false)
		c := admitted(t)
		var want []string
		for i := range 20 {
			r := aRule(t, fmt.Sprint("late-", i), "{}")
			if err := c.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			want = append(want, cases.String(r.Spec.Taint))
			if i%4 == 0 {
				creates(fmt.Sprint("defining-", i))
			}
		}
		want = append(want, gate)
		slices.Sort(want)
		eventually(t, "all of twenty rules taint nodes at their creation", func() error {
			if got := taintsOf(creates("defined")); !slices.Equal(got, want) {
				return errors.New(strings.Join(got, ", "))
			}
			return nil
		})
	})
	eventually(t, "the rules of a definition that is gone taint nothing", func() error {
		if n := creates("gone"); len(n.Spec.Taints) != 1 {
			return fmt.Errorf("%v", taintsOf(n))
		}
		return nil
	})
}

// What a rule puts on a node at its creation is the rule's own: it is released without having been adopted first.
func TestWhatARulePutOnAtCreationIsReleased(t *testing.T) {
	define(t, false)
	c := admitted(t)
	i := setup(t, "rules: {enabled: true}", policyMode)
	controller, err := install.StartController(t.Context(), control, "rules-at-creation", i.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { controller.Terminate(time.Second) })
	r := aRule(t, "created", "{}")
	r.Finalizers = nil
	if err := c.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	const taint = "readiness.k8s.io/created=:NoSchedule"
	eventually(t, "the rule, once it has its finalizer, taints nodes at their creation", func() error {
		n := newNode("created-0", true)
		if err := asKubelet(t.Context(), n, client.DryRunAll); err != nil || !slices.Contains(taintsOf(n), taint) {
			return fmt.Errorf("%v (%w)", taintsOf(n), err)
		}
		return nil
	})
	n := newNode("created-1", true)
	if err := asKubelet(t.Context(), n); err != nil || marks.OwnedOn(n)[string(r.UID)] != marks.TaintIDOf(r.Spec.Taint) {
		t.Fatalf("%v (%v)", n.Annotations, err)
	}
	condition := `{"status":{"conditions":[{"type":"none","status":"True","reason":"Test"}]}}`
	if err := c.Status().Patch(t.Context(), n, client.RawPatch("application/strategic-merge-patch+json", []byte(condition))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is released", func() error {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(n), n)
		if err == nil && (slices.Contains(taintsOf(n), taint) || n.Annotations[marks.AnnotationRules] != "") {
			err = fmt.Errorf("%v %v", taintsOf(n), n.Annotations)
		}
		return err
	})
}
