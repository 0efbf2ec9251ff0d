package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

const conflictsKey = "ValidatingAdmissionPolicy kube-node-ready-rule-conflicts"

// aRuleOf is a manifest of a rule with the selector and whatever else its spec is to have.
func aRuleOf(name, key, selector, more string) string {
	return fmt.Sprintf(`{"apiVersion": "readiness.node.x-k8s.io/v1alpha1", "kind": "NodeReadinessRule", "metadata": {"name": %q}, "spec": {
		"nodeSelector": %s, "enforcementMode": "continuous", "conditions": [{"type": "c", "requiredStatus": "True"}],
		"taint": {"key": "readiness.k8s.io/%s", "effect": "NoSchedule"}%s}}`, name, selector, key, more)
}

// Conflicts are refused on our own definition alone, and the roles for people are where the values ask for them.
func TestWhatTheChartMakesForRules(t *testing.T) {
	viewer, editor := "ClusterRole kube-node-ready-rules-viewer", "ClusterRole kube-node-ready-rules-editor"
	for name, test := range map[string]struct {
		values           string
		conflicts, roles bool
	}{
		"default":                  {"", true, true},
		"somebody else's":          {"rules: {installCRD: false}", false, true},
		"conflicts are allowed":    {"rules: {refuseConflicts: false}", false, true},
		"roles are somebody's own": {"rules: {clusterRoles: false}", true, false},
	} {
		found := render(t, test.values)
		if _, is := found[conflictsKey]; is != test.conflicts {
			t.Errorf("%s: conflicts are refused: %v", name, is)
		}
		for _, key := range []string{viewer, editor} {
			if _, is := found[key]; is != test.roles {
				t.Errorf("%s: %s: %v", name, key, is)
			}
		}
	}
	for _, rule := range get[rbacv1.ClusterRole](t, render(t, ""), viewer).Rules {
		for _, verb := range rule.Verbs {
			if !slices.Contains([]string{"get", "list", "watch"}, verb) {
				t.Errorf("the viewer may %s", verb)
			}
		}
	}
}

// On a real API server: whoever may view or edit may read or write rules, and of two rules in conflict the second is
// not created. What is there already can be changed and deleted all the same.
func testRulesOfPeople(t *testing.T, c *cluster.Cluster) {
	release := func(verb, conflicts string) {
		t.Helper()
		helmOn(t, c, verb, "kube-node-ready", chartDir, "--set", "controller.replicas=0,rules.refuseConflicts="+conflicts)
	}
	run := func(input string, args ...string) (string, string) {
		t.Helper()
		out, stderr, err := kubectl(t, c, input, args...)
		if err == nil {
			stderr = ""
		} else if stderr == "" {
			stderr = err.Error()
		}
		return strings.TrimSpace(out), stderr
	}
	must := func(input string, args ...string) {
		t.Helper()
		if _, failure := run(input, args...); failure != "" {
			t.Fatalf("kubectl %s: %s", strings.Join(args, " "), failure)
		}
	}
	release("install", "false")
	must("", "wait", "--for=condition=Established", "crd/nodereadinessrules.readiness.node.x-k8s.io", "--timeout=60s")

	for _, role := range []string{"view", "edit", "admin"} {
		must("", "create", "clusterrolebinding", role+"s", "--clusterrole="+role, "--user="+role)
	}
	may := func(user, verb, resource string, more ...string) bool {
		out, _ := run("", append([]string{"auth", "can-i", verb, resource, "--as", user}, more...)...)
		return strings.HasPrefix(out, "yes")
	}
	const resource = "nodereadinessrules.readiness.node.x-k8s.io"
	eventually(t, "the roles are aggregated", func() bool {
		return may("view", "list", resource) && may("edit", "create", resource) && may("admin", "delete", resource)
	})
	for _, no := range [][2]string{{"view", "create"}, {"view", "patch"}, {"view", "delete"}, {"edit", "escalate"}} {
		if may(no[0], no[1], resource) {
			t.Errorf("%s may %s rules", no[0], no[1])
		}
	}
	for _, user := range []string{"view", "edit", "admin"} {
		if !may(user, "get", resource, "--subresource=status") {
			t.Errorf("%s may not read the status", user)
		}
		if may(user, "patch", resource, "--subresource=status") {
			t.Errorf("%s may write the status, which is the controller's", user)
		}
	}

	const worker = `{"matchLabels": {"role": "worker"}}`
	create := func(name, key, selector, more string) string {
		t.Helper()
		_, failure := run(aRuleOf(name, key, selector, more), "create", "-f", "-")
		return failure
	}
	for _, rule := range [][4]string{{"first", "a", worker, ""}, {"second", "a", worker, ""}, {"dry", "dry", worker, `, "dryRun": true`}, {"leaving", "leaving", worker, ""}} {
		if failure := create(rule[0], rule[1], rule[2], rule[3]); failure != "" {
			t.Fatal(failure)
		}
	}
	release("upgrade", "true")
	eventually(t, "a conflict is refused", func() bool {
		failure := create("third", "a", worker, "")
		if failure == "" {
			must("", "delete", "nrr", "third")
		}
		return strings.Contains(failure, "has the taint readiness.k8s.io/a:NoSchedule too")
	})
	must("", "patch", "nrr", "leaving", "--type=merge", "--patch", `{"metadata": {"finalizers": ["example.com/keep"]}}`)
	must("", "delete", "nrr", "leaving", "--wait=false")
	in := func(operator, values string) string {
		return fmt.Sprintf(`{"matchExpressions": [{"key": "role", "operator": %q, "values": [%s]}]}`, operator, values)
	}
	for name, test := range map[string]struct {
		key, selector, more string
		refused             bool
	}{
		"other-nodes":    {"a", `{"matchLabels": {"role": "other"}}`, "", false},
		"narrower":       {"a", `{"matchLabels": {"role": "worker", "zone": "a"}}`, "", true},
		"another-label":  {"a", `{"matchLabels": {"zone": "a"}}`, "", true},
		"in-both":        {"a", in("In", `"third", "worker"`), "", true},
		"in-none":        {"a", in("In", `"third", "fourth"`), "", false},
		"not-in":         {"a", in("NotIn", `"worker", "other"`), "", false},
		"absent":         {"a", in("DoesNotExist", ""), "", false},
		"present":        {"a", in("Exists", ""), "", true},
		"another-key":    {"b", worker, "", false},
		"dry-run-too":    {"a", worker, `, "dryRun": true`, true},
		"beside-dry-run": {"dry", worker, "", false},
		"after-deletion": {"leaving", worker, "", false},
	} {
		failure := create(name, test.key, test.selector, test.more)
		if test.refused && !strings.Contains(failure, "rule-conflicts") {
			t.Errorf("%s is not refused: %q", name, failure)
		}
		if !test.refused && failure != "" { // the API server learns a moment later of what was deleted before
			eventually(t, name+" is not refused: "+failure, func() bool { failure = create(name, test.key, test.selector, test.more); return failure == "" })
		}
		if failure == "" { // each is tried by itself
			must("", "delete", "nrr", name)
		}
	}
	if failure := create("first", "a", worker, ""); strings.Contains(failure, "rule-conflicts") && !strings.Contains(failure, "NodeReadinessRule second") || failure == "" {
		t.Errorf("a rule that is there: %q", failure)
	}
	for _, name := range []string{"first", "second"} {
		must("", "patch", "nrr", name, "--type=merge", "--patch", `{"metadata": {"finalizers": ["readiness.node.x-k8s.io/cleanup-taints"]}}`)
		must("", "patch", "nrr", name, "--type=merge", "--patch", `{"spec": {"dryRun": true}}`)
		must("", "patch", "nrr", name, "--type=merge", "--patch", `{"spec": {"dryRun": false}}`)
	}
	must("", "delete", "nrr", "first", "--wait=false")
	must("", "patch", "nrr", "first", "--type=merge", "--patch", `{"metadata": {"finalizers": null}}`)
	eventually(t, "a deleted rule goes", func() bool { _, failure := run("", "get", "nrr", "first"); return failure != "" })
}
