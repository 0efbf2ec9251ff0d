package chart

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// renamed names every mark on nodes that can be named otherwise. It says nothing of admissionPolicy.
const renamed = `
controller:
  replicas: 0
  image: {tag: local}
  config:
    nodeManagement:
      verifiedLabel: {key: example.com/verified}
      completedAnnotation: startup.k8s.io/completedAt
      taints: [{key: example.com/unverified, effect: NoExecute}]
    profiles:
      - name: gpu
        nodeSelector: {matchLabels: {gpu: "true"}}
        taints: [{key: gpu.example.com/unverified, effect: NoSchedule}]
`

// mark is one that a node's credential tries to write: a label, an annotation, a condition or a taint.
type mark struct{ kind, key string }

// marksOf are the marks of each row of the table in docs/design/security.md, under the configuration "renamed".
var marksOf = map[string][]mark{
	"the verified label":                         {{"label", "example.com/verified"}},
	"`node-ready/record`":                        {{"annotation", marks.AnnotationRecord}},
	"`node-ready/rules`":                         {{"annotation", marks.AnnotationRules}},
	"`node-ready/rules-released`":                {{"annotation", marks.AnnotationReleased}},
	"`readiness.k8s.io/bootstrap-completed-…`":   {{"annotation", "readiness.k8s.io/bootstrap-completed-uid"}},
	"`node-ready/skip`":                          {{"annotation", marks.AnnotationSkip}},
	"`node-ready/do-not-delete`":                 {{"annotation", marks.AnnotationDoNotDelete}},
	"`nodeManagement.completedAnnotation`":       {{"annotation", "startup.k8s.io/completedAt"}},
	"another label or annotation `node-ready/…`": {{"label", "node-ready/other"}, {"annotation", "node-ready/other"}},
	"the condition `node-ready/Verified`":        {{"condition", string(marks.ConditionType)}},
	"a taint":                                    {{"taint", "example.com/unverified"}},
}

// rowsOf are the first cells of a table's rows in docs/design/security.md.
func rowsOf(t *testing.T, header string) (rows []string) {
	t.Helper()
	_, table, found := strings.Cut(readFile(t, filepath.Join("..", "..", "docs", "design", "security.md")), "| "+header+" |")
	if !found {
		t.Fatalf("docs/design/security.md has no table %q", header)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for _, line := range strings.Split(table, "\n")[2:] {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		rows = append(rows, cell)
	}
	return rows
}

// with is a patch that gives a mark a value; nil removes it.
func (m mark) with(value any) (types.PatchType, map[string]any) {
	switch m.kind {
	case "condition":
		condition := map[string]any{"type": m.key, "$patch": "delete"}
		if value != nil {
			condition = map[string]any{"type": m.key, "status": "Unknown", "reason": value}
		}
		return types.StrategicMergePatchType, map[string]any{"status": map[string]any{"conditions": []any{condition}}}
	case "taint":
		taints := []any{}
		if value != nil {
			taints = append(taints, map[string]any{"key": m.key, "value": value, "effect": "NoExecute"})
		}
		return types.MergePatchType, map[string]any{"spec": map[string]any{"taints": taints}}
	}
	return types.MergePatchType, map[string]any{"metadata": map[string]any{m.kind + "s": map[string]any{m.key: value}}}
}

// patched patches a node, or its status.
func (f fortress) patched(as client.Client, node string, status bool, kind types.PatchType, patch any) error {
	body, err := json.Marshal(patch)
	f.must(err)
	n, p := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(kind, body)
	if status {
		return as.Status().Patch(f.Context(), n, p)
	}
	return as.Patch(f.Context(), n, p)
}

func (f fortress) marked(as client.Client, node string, m mark, value any, status bool) error {
	kind, patch := m.with(value)
	return f.patched(as, node, status, kind, patch)
}

// upgrade upgrades the installation with further values.
func (f fortress) upgrade(values string, set ...string) {
	f.Helper()
	args := append([]string{"upgrade", "kube-node-ready", chartDir}, valuesFile(f.T, values)...)
	for _, value := range set {
		args = append(args, "--set", value)
	}
	helmOn(f.T, f.cluster, args...)
}

// kubelet is a client with a node's own credential, as one that changes nothing.
func (f fortress) kubelet(node string) client.Client {
	f.Helper()
	file, err := f.cluster.KubeconfigForUser("kubelet-"+node, "system:node:"+node, "system:nodes")
	f.must(err)
	c, err := clientcmd.BuildConfigFromFlags("", file)
	f.must(err)
	k, err := client.New(c, client.Options{Scheme: f.scheme})
	f.must(err)
	return client.NewDryRunClient(k)
}

// A node's own credential writes no mark of ours on its Node, and all else that a kubelet writes. Without the policy
// the API server lets it through, but for taints. The rows are those of docs/design/security.md, which says what each
// mark would be worth.
func (f fortress) testWhatANodeMayWriteOfItself() {
	t := f.T
	f.upgrade(renamed)
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
	marked := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "marked"}}
	marked.Labels, marked.Annotations = map[string]string{}, map[string]string{}
	for _, all := range marksOf {
		for _, m := range all {
			switch m.kind {
			case "label":
				marked.Labels[m.key] = "true"
			case "annotation":
				marked.Annotations[m.key] = "{}"
			case "taint":
				marked.Spec.Taints = []corev1.Taint{{Key: m.key, Effect: corev1.TaintEffectNoExecute}}
			}
		}
	}
	f.must(f.admin.Create(t.Context(), bare))
	f.must(f.admin.Create(t.Context(), marked))
	f.must(f.marked(f.admin, marked.Name, mark{"condition", string(marks.ConditionType)}, "Ours", true))
	onBare, onMarked := f.kubelet(bare.Name), f.kubelet(marked.Name)
	skip := mark{"annotation", marks.AnnotationSkip}
	eventually(t, "the policy is in force", func() bool {
		return deniedBy("kubelets", f.marked(onBare, bare.Name, mark{"label", "example.com/verified"}, "true", false))
	})

	rows := rowsOf(t, "what a node writes of itself")
	if want := slices.Sorted(maps.Keys(marksOf)); !slices.Equal(slices.Sorted(slices.Values(rows)), want) {
		t.Fatalf("the table has the rows\n%s\nand the test\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
	for _, row := range rows {
		t.Run(row, func(t *testing.T) {
			f := fortress{T: t, cluster: f.cluster, admin: f.admin, scheme: f.scheme}
			for _, m := range marksOf[row] {
				for _, status := range []bool{false, true} {
					for what, err := range map[string]error{
						"is added":   f.marked(onBare, bare.Name, m, "true", status),
						"is changed": f.marked(onMarked, marked.Name, m, "forged", status),
						"is removed": f.marked(onMarked, marked.Name, m, nil, status),
					} {
						switch {
						case m.kind == "taint":
							if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "is not allowed to modify taints") {
								t.Errorf("%s: %v", what, err)
							}
						case m.kind == "condition" && !status: // the API server drops it
							f.allowed(what, err)
						default:
							f.denied("kubelets", what, err)
						}
					}
				}
			}
		})
	}
	f.kubeletWrites(onMarked, marked.Name)
	f.registers("new")
	f.allowed("a person's", f.marked(f.as(somebody), marked.Name, skip, nil, false))
	reporter := f.as("system:node:" + marked.Name) // as one that impersonates its node, without the group
	ready := mark{"condition", "example.com/Ready"}
	f.allowed("a reporter's condition", f.marked(reporter, marked.Name, ready, "EndpointOK", true))
	f.denied("kubelets", "a reporter's annotation", f.marked(reporter, marked.Name, skip, nil, true))

	f.upgrade(renamed, "admissionPolicy.kubelets=false")
	eventually(t, "the policy is gone", func() bool { return f.marked(onBare, bare.Name, skip, "true", false) == nil })
	for _, row := range rows {
		for _, m := range marksOf[row] {
			err := f.marked(onBare, bare.Name, m, "true", m.kind == "condition")
			if (err == nil) == (m.kind == "taint") {
				t.Errorf("%s, without the policy: %v", row, err)
			}
		}
	}
	if err := onBare.Delete(t.Context(), bare.DeepCopy()); !apierrors.IsForbidden(err) {
		t.Errorf("its own Node is deleted: %v", err)
	}
	t.Run("the controller", func(t *testing.T) {
		f := f
		f.T = t
		f.upgrade(renamed)
		f.nodeMarksFollowTheConfiguration()
	})
}

// kubeletWrites tries what a kubelet does, on a node that has all of our marks.
func (f fortress) kubeletWrites(k client.Client, node string) {
	f.Helper()
	for what, m := range map[string]mark{
		"a label":       {"label", "example.com/rack"},
		"an annotation": {"annotation", "volumes.kubernetes.io/controller-managed-attach-detach"},
	} {
		f.allowed(what, f.marked(k, node, m, "true", false))
		f.allowed(what+" by status", f.marked(k, node, m, "true", true))
	}
	f.allowed("a heartbeat", f.marked(k, node, mark{"condition", "Ready"}, "KubeletReady", true))
	n := &corev1.Node{}
	f.must(k.Get(f.Context(), types.NamespacedName{Name: node}, n))
	n.Labels["example.com/rack"] = "2"
	f.allowed("an update that keeps what was read", k.Update(f.Context(), n.DeepCopy()))
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	n.Status.Conditions = append(n.Status.Conditions, ready)
	f.allowed("an update of the status likewise", k.Status().Update(f.Context(), n.DeepCopy()))
}

// registers tries the creation of a node with marks of ours.
func (f fortress) registers(node string) {
	f.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"example.com/verified": "true"},
		Annotations: map[string]string{"node-ready/rules": "{}"}}}
	f.allowed("registration with --node-labels", f.kubelet(node).Create(f.Context(), n))
}

// nodeMarksFollowTheConfiguration shows that the policy on nodes lets our accounts write the marks under the names that
// are configured, and no others.
func (f fortress) nodeMarksFollowTheConfiguration() {
	f.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{"node-ready/skip": "true"}}}
	f.must(f.admin.Create(f.Context(), n))
	k := f.as(ourController)
	marked := func(kind, key string) error { return f.marked(k, n.Name, mark{kind, key}, "1", false) }
	eventually(f.T, "the policy is in force", func() bool { return deniedBy("nodes", marked("label", "a")) })
	taint := func(key, effect string) map[string]any {
		return map[string]any{"spec": map[string]any{"taints": []any{map[string]any{"key": key, "effect": effect}}}}
	}
	tainted := func(key, effect string) error {
		return f.patched(k, n.Name, false, types.MergePatchType, taint(key, effect))
	}
	f.allowed("the configured label", marked("label", "example.com/verified"))
	f.allowed("the configured annotation", marked("annotation", "startup.k8s.io/completedAt"))
	f.allowed("the configured taint", tainted("example.com/unverified", "NoExecute"))
	f.allowed("its fallback", tainted("example.com/unverified", "NoSchedule"))
	f.allowed("a profile's taint", tainted("gpu.example.com/unverified", "NoSchedule"))
	f.allowed("a rule's taint", tainted("readiness.k8s.io/agent", "NoExecute"))
	f.denied("nodes", "the label's default name", marked("label", "node-ready/verified"))
	f.denied("nodes", "the taint's default name", tainted("node-ready/unverified", "NoSchedule"))
	f.denied("nodes", "a profile's taint with another effect", tainted("gpu.example.com/unverified", "NoExecute"))

	f.upgrade(renamed, "controller.config.rules.enabled=false", "controller.config.nodeManagement.completedAnnotation=")
	eventually(f.T, "rules' taints are refused without rules", func() bool {
		return deniedBy("nodes", tainted("readiness.k8s.io/agent", "NoExecute"))
	})
	f.denied("nodes", "what rules own, without rules", marked("annotation", "node-ready/rules"))
	f.denied("nodes", "an annotation that is not configured", marked("annotation", "startup.k8s.io/completedAt"))
}

// Which policies there are follows from the values, and from what the API server has.
func TestWhichAdmissionPolicies(t *testing.T) {
	pods := []string{"pods", "pods-kept", "pods-of-others"}
	known := []string{"--api-versions", "v1/Node"}
	served := slices.Concat(known, []string{"--api-versions", "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"})
	standard := []string{"kubelets", "nodes", "rules"}
	all := slices.Concat(standard, pods)
	for name, test := range map[string]struct {
		values string
		args   []string
		want   []string
	}{
		"by default":               {"", served, standard},
		"helm template":            {"", nil, standard},
		"not served":               {"", known, nil},
		"not served, asked for":    {"admissionPolicy: {nodes: true}", known, []string{"nodes"}},
		"all":                      {"admissionPolicy: {enabled: true}", served, all},
		"none":                     {"admissionPolicy: {enabled: false}", served, nil},
		"none but one":             {"admissionPolicy: {enabled: false, pods: true}", served, pods},
		"one more":                 {"admissionPolicy: {pods: true}", served, all},
		"nodes off":                {"admissionPolicy: {nodes: false}", served, []string{"kubelets", "rules"}},
		"rules off":                {"admissionPolicy: {rules: false}", served, []string{"kubelets", "nodes"}},
		"kubelets off":             {"admissionPolicy: {kubelets: false}", served, []string{"nodes", "rules"}},
		"all but pods":             {"admissionPolicy: {enabled: true, pods: false}", served, standard},
		"rules are not served":     {"controller: {config: {rules: {enabled: false}}}", served, standard[:2]},
		"DaemonSet mode":           {"deploymentMode: daemonset", served, []string{"daemonset", "kubelets"}},
		"DaemonSet mode, none":     {"admissionPolicy: {enabled: false}\ndeploymentMode: daemonset", nil, []string{"daemonset"}},
		"a dependency that is off": {"enabled: false", served, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var policies, bindings []string
			for key := range render(t, test.values, test.args...) {
				if strings.Contains(key, " kube-node-ready-rule-") { // those limit nobody of ours
					if name == "not served" && strings.HasPrefix(key, "Validating") {
						t.Errorf("%s, where the API server has no such policies", key)
					}
					continue
				}
				if policy, ok := strings.CutPrefix(key, "ValidatingAdmissionPolicy kube-node-ready-"); ok {
					policies = append(policies, policy)
				}
				if policy, ok := strings.CutPrefix(key, "ValidatingAdmissionPolicyBinding kube-node-ready-"); ok {
					bindings = append(bindings, policy)
				}
			}
			want := slices.Sorted(slices.Values(test.want))
			slices.Sort(policies)
			slices.Sort(bindings)
			if !slices.Equal(policies, want) || !slices.Equal(bindings, want) {
				t.Errorf("policies %q, bindings %q, want %q", policies, bindings, want)
			}
		})
	}
}
