package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// What a real API server makes of rules; each part begins without a definition of them.
func testRulesOnAnAPIServer(t *testing.T, c *cluster.Cluster) {
	withoutRules(t, c)
	for _, part := range []struct {
		name string
		test func(*testing.T, *cluster.Cluster)
	}{
		{"warnings", testWarningsAboutRules}, {"people", testRulesOfPeople}, {"definition", testTheDefinitionOfRules},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, c) })
		withoutRules(t, c)
	}
}

// withoutRules takes away the release, if there is one, and then all rules and their definition.
func withoutRules(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	_, _ = tryHelmOn(t, c, "uninstall", "kube-node-ready")
	rules, _, _ := kubectl(t, c, "", "get", "nrr", "-o", "name")
	for _, rule := range strings.Fields(rules) {
		if _, stderr, err := kubectl(t, c, "", "patch", rule, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`); err != nil {
			t.Fatal(stderr)
		}
	}
	if _, stderr, err := kubectl(t, c, "", "delete", "crd", "nodereadinessrules.readiness.node.x-k8s.io", "--ignore-not-found"); err != nil {
		t.Fatal(stderr)
	}
}

// The definition of NodeReadinessRule is installed, kept at uninstall with its rules, found again by the next installation, and
// not put onto somebody else's.
func testTheDefinitionOfRules(t *testing.T, c *cluster.Cluster) {
	install := func(more ...string) string {
		t.Helper()
		_, failure := tryHelmOn(t, c, append([]string{"install", "kube-node-ready", chartDir}, more...)...)
		return failure
	}
	const rule = `{"apiVersion": "readiness.node.x-k8s.io/v1alpha1", "kind": "NodeReadinessRule",
		"metadata": {"name": "kept", "finalizers": ["readiness.node.x-k8s.io/cleanup-taints"]}, "spec": {
		"nodeSelector": {"matchLabels": {"a": "b"}}, "enforcementMode": "continuous", "conditions": [{"type": "c", "requiredStatus": "True"}],
		"taint": {"key": "readiness.k8s.io/kept", "effect": "NoSchedule"}}}`
	run := func(input string, args ...string) string {
		t.Helper()
		out, stderr, err := kubectl(t, c, input, args...)
		if err != nil {
			t.Fatalf("kubectl %s: %s", strings.Join(args, " "), stderr)
		}
		return out
	}

	if failure := install(); failure != "" {
		t.Fatal(failure)
	}
	run("", "wait", "--for=condition=Established", "crd/nodereadinessrules.readiness.node.x-k8s.io", "--timeout=60s")
	run(rule, "create", "-f", "-")
	helmOn(t, c, "uninstall", "kube-node-ready")
	if out := run("", "get", "nrr", "kept", "-o", "jsonpath={.metadata.deletionTimestamp}"); out != "" {
		t.Errorf("the rule is being deleted since %s", out)
	}
	if failure := install(); failure != "" {
		t.Fatalf("a second installation: %s", failure)
	}
	run("", "get", "nrr", "kept")
	keepsNewerFields(t, c, run)
	helmOn(t, c, "uninstall", "kube-node-ready")

	releaseByHand(t, c, run)
	foreign, err := os.ReadFile("../rules/testdata/nrc-v0.5.0.yaml")
	if err != nil {
		t.Fatal(err)
	}
	run(string(foreign), "create", "-f", "-")
	if failure := install(); !strings.Contains(failure, "rules.installCRD=false") {
		t.Errorf("onto somebody else's: %q", failure)
	}
	if failure := install("--set", "rules.installCRD=false"); failure != "" {
		t.Errorf("beside it: %s", failure)
	}
}

// keepsNewerFields upgrades a release whose definition has fields that ours does not know. That happens after a newer
// release, or after a newer node-readiness-controller has handed its definition over. It also upgrades a release whose
// definition only lacks fields of ours.
func keepsNewerFields(t *testing.T, c *cluster.Cluster, run func(input string, args ...string) string) {
	t.Helper()
	const crd = "crd/nodereadinessrules.readiness.node.x-k8s.io"
	const schema = "/spec/versions/0/schema/openAPIV3Schema/properties"
	has := func(field string) bool {
		return strings.Contains(run("", "get", crd, "-o", "jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties"+field+"}"), "type")
	}
	run("", "patch", crd, "--type=json", "--patch", `[{"op": "remove", "path": "`+schema+`/spec/properties/dryRun/description"},
		{"op": "add", "path": "`+schema+`/spec/properties/conditions/items/properties/newer", "value": {"type": "string"}}]`)
	helmOn(t, c, "upgrade", "kube-node-ready", chartDir)
	if !has(".spec.properties.conditions.items.properties.newer") {
		t.Error("a field that is not known here is gone from the definition")
	}
	run("", "patch", crd, "--type=json", "--patch", `[{"op": "remove", "path": "`+schema+`/spec/properties/conditions/items/properties/newer"},
		{"op": "remove", "path": "`+schema+`/status/properties/dryRunResults"}]`)
	helmOn(t, c, "upgrade", "kube-node-ready", chartDir)
	if !has(".status.properties.dryRunResults") {
		t.Error("an older definition is not brought up to date")
	}
}

// releaseByHand runs the commands of docs/guides/rules.md that end everything where no controller serves rules.
func releaseByHand(t *testing.T, c *cluster.Cluster, run func(input string, args ...string) string) {
	t.Helper()
	for name, spec := range map[string]string{
		"gated": `"annotations": {"node-ready/rules": "{}"}}, "spec": {"taints": [{"key": "readiness.k8s.io/network-ready", "effect": "NoSchedule"}, {"key": "other", "effect": "NoSchedule"}]}`,
		"free":  `"labels": {"a": "b"}}`,
	} {
		run(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "`+name+`", `+spec+`}`, "create", "-f", "-")
	}
	page := readFile(t, "../../docs/guides/rules.md")
	_, section, _ := strings.Cut(page, "## Uninstalling")
	_, block, _ := strings.Cut(section, "```sh\n")
	script, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("docs/guides/rules.md has no commands under Uninstalling")
	}
	bash := exec.CommandContext(t.Context(), "bash", "-e", "-c", script)
	bash.Env = append(os.Environ(), "PATH="+filepath.Dir(tool("kubectl"))+":"+os.Getenv("PATH"), "KUBECONFIG="+c.Kubeconfig())
	if out, err := bash.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	if out := run("", "get", "node", "gated", "-o", "jsonpath={.spec.taints[*].key} {.metadata.annotations}"); strings.Contains(out, "readiness.k8s.io") || strings.Contains(out, "node-ready/rules") || !strings.Contains(out, "other") {
		t.Errorf("the node has %s", out)
	}
	if out := run("", "get", "crd", "-o", "name"); strings.Contains(out, "nodereadinessrules") {
		t.Errorf("the definition is there: %s", out)
	}
}
