package chart

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// definitionOfRules is the name of the definition of NodeReadinessRule.
const definitionOfRules = "nodereadinessrules.readiness.node.x-k8s.io"

// resources reads and writes objects as an administrator, without a kubectl for each, and knows what the API server
// warned of.
type resources struct {
	rules, definitions dynamic.NamespaceableResourceInterface
	warnings           *bytes.Buffer
}

func resourcesOn(c *cluster.Cluster) resources {
	r := resources{warnings: &bytes.Buffer{}}
	config := c.Config()
	config.WarningHandler = rest.NewWarningWriter(r.warnings, rest.WarningWriterOptions{})
	api := dynamic.NewForConfigOrDie(config)
	r.rules = api.Resource(v1alpha1.GroupVersion.WithResource("nodereadinessrules"))
	definitions := schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
	r.definitions = api.Resource(definitions.WithResource("customresourcedefinitions"))
	return r
}

// create creates the object of a manifest, and returns what the API server warns of and its refusal.
func (r resources) create(t *testing.T, in dynamic.ResourceInterface, manifest string) (warned string, err error) {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		t.Fatal(err)
	}
	r.warnings.Reset()
	_, err = in.Create(t.Context(), o, metav1.CreateOptions{})
	return r.warnings.String(), err
}

// patch patches a rule, which must succeed, and returns what the API server warns of.
func (r resources) patch(t *testing.T, rule, patch string) (warned string) {
	t.Helper()
	r.warnings.Reset()
	if _, err := r.rules.Patch(t.Context(), rule, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatalf("patch %s: %v", rule, err)
	}
	return r.warnings.String()
}

func (r resources) delete(t *testing.T, rule string) {
	t.Helper()
	if err := r.rules.Delete(t.Context(), rule, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// served waits until rules are served.
func (r resources) served(t *testing.T) {
	t.Helper()
	eventually(t, "rules are served", func() bool {
		_, err := r.rules.List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
}

// What a real API server makes of rules; the last part begins without a definition of them.
func testRulesOnAnAPIServer(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	withoutRules(t, c)
	helmOn(t, c, "install", "kube-node-ready", chartDir, "--set", "controller.replicas=0,rules.refuseConflicts=false")
	resourcesOn(c).served(t)
	t.Run("warnings", func(t *testing.T) { testWarningsAboutRules(t, c) })
	t.Run("people", func(t *testing.T) { testRulesOfPeople(t, c, client) })
	helmOn(t, c, "uninstall", "kube-node-ready")
	withoutRules(t, c)
	t.Run("definition", func(t *testing.T) { testTheDefinitionOfRules(t, c, client) })
	_, _ = tryHelmOn(t, c, "uninstall", "kube-node-ready")
	withoutRules(t, c)
}

// withoutRules takes away all rules and their definition.
func withoutRules(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	r := resourcesOn(c)
	rules, err := r.rules.List(t.Context(), metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules.Items {
		r.patch(t, rule.GetName(), `{"metadata":{"finalizers":null}}`)
	}
	if err := r.definitions.Delete(t.Context(), definitionOfRules, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the definition of rules is gone", func() bool {
		_, err := r.definitions.Get(t.Context(), definitionOfRules, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// The definition of NodeReadinessRule is installed, kept at uninstall with its rules, found again by the next installation, and
// not put onto somebody else's.
func testTheDefinitionOfRules(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	install := func(more ...string) string {
		t.Helper()
		_, failure := tryHelmOn(t, c, append([]string{"install", "kube-node-ready", chartDir}, more...)...)
		return failure
	}
	const rule = `{"apiVersion": "readiness.node.x-k8s.io/v1alpha1", "kind": "NodeReadinessRule",
		"metadata": {"name": "kept", "finalizers": ["readiness.node.x-k8s.io/cleanup-taints"]}, "spec": {
		"nodeSelector": {"matchLabels": {"a": "b"}}, "enforcementMode": "continuous", "conditions": [{"type": "c", "requiredStatus": "True"}],
		"taint": {"key": "readiness.k8s.io/kept", "effect": "NoSchedule"}}}`
	r := resourcesOn(c)
	stays := func() {
		t.Helper()
		kept, err := r.rules.Get(t.Context(), "kept", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if kept.GetDeletionTimestamp() != nil {
			t.Errorf("the rule is being deleted since %s", kept.GetDeletionTimestamp())
		}
	}

	if failure := install(); failure != "" {
		t.Fatal(failure)
	}
	r.served(t)
	if _, err := r.create(t, r.rules, rule); err != nil {
		t.Fatal(err)
	}
	helmOn(t, c, "uninstall", "kube-node-ready")
	stays()
	if failure := install(); failure != "" {
		t.Fatalf("a second installation: %s", failure)
	}
	stays()
	keepsNewerFields(t, c, r)
	helmOn(t, c, "uninstall", "kube-node-ready")

	releaseByHand(t, c, client, r)
	foreign, err := os.ReadFile("../rules/testdata/nrc-v0.5.0.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.create(t, r.definitions, string(foreign)); err != nil {
		t.Fatal(err)
	}
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
func keepsNewerFields(t *testing.T, c *cluster.Cluster, r resources) {
	t.Helper()
	const schema = "/spec/versions/0/schema/openAPIV3Schema/properties"
	has := func(field ...string) bool {
		t.Helper()
		definition, err := r.definitions.Get(t.Context(), definitionOfRules, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
		if err != nil || len(versions) == 0 {
			t.Fatalf("%v: %v", versions, err)
		}
		return at(versions[0], append([]string{"schema", "openAPIV3Schema", "properties"}, field...)...) != nil
	}
	patch := func(patch string) {
		t.Helper()
		_, err := r.definitions.Patch(t.Context(), definitionOfRules, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	patch(`[{"op": "remove", "path": "` + schema + `/spec/properties/dryRun/description"},
		{"op": "add", "path": "` + schema + `/spec/properties/conditions/items/properties/newer", "value": {"type": "string"}}]`)
	helmOn(t, c, "upgrade", "kube-node-ready", chartDir)
	if !has("spec", "properties", "conditions", "items", "properties", "newer") {
		t.Error("a field that is not known here is gone from the definition")
	}
	patch(`[{"op": "remove", "path": "` + schema + `/spec/properties/conditions/items/properties/newer"},
		{"op": "remove", "path": "` + schema + `/status/properties/dryRunResults"}]`)
	helmOn(t, c, "upgrade", "kube-node-ready", chartDir)
	if !has("status", "properties", "dryRunResults") {
		t.Error("an older definition is not brought up to date")
	}
}

// releaseByHand runs the commands of docs/guides/rules.md that end everything where no controller serves rules.
func releaseByHand(t *testing.T, c *cluster.Cluster, client kubernetes.Interface, r resources) {
	t.Helper()
	gated, free := &corev1.Node{}, &corev1.Node{}
	gated.Name, gated.Annotations = "gated", map[string]string{"node-ready/rules": "{}"}
	for _, key := range []string{"readiness.k8s.io/network-ready", "other"} {
		gated.Spec.Taints = append(gated.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
	free.Name, free.Labels = "free", map[string]string{"a": "b"}
	for _, n := range []*corev1.Node{gated, free} {
		if _, err := client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
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
	n, err := client.CoreV1().Nodes().Get(t.Context(), gated.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if taints := n.Spec.Taints; len(taints) != 1 || taints[0].Key != "other" || n.Annotations["node-ready/rules"] != "" {
		t.Errorf("the node has %v, %v", taints, n.Annotations)
	}
	if _, err := r.definitions.Get(t.Context(), definitionOfRules, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the definition is there: %v", err)
	}
}
