// Package chart tests the Helm chart on what Helm renders from it and on what a real API server
// says to that.
package chart

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/helmrender"
	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

// namespace that the tests install into.
const namespace = "kube-node-ready"

// tool is the path of a program that test/tools/build.sh builds.
func tool(name string) string {
	path, err := cluster.Tool(name)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return path
}

// helm runs Helm and returns what it printed, and its error message where it failed. What it only renders is rendered by a
// process that has started already.
func helm(t *testing.T, args ...string) (stdout, failure string) {
	t.Helper()
	if args[0] != "template" {
		return helmItself(t, args...)
	}
	inputs.Track(t, chartDir)
	stdout, failure, err := helmrender.Template(args[1:]...)
	if err != nil {
		t.Fatalf("the renderer: %v", err)
	}
	return stdout, failure
}

// helmItself is helm by a process of Helm's own program.
func helmItself(t *testing.T, args ...string) (stdout, failure string) {
	t.Helper()
	inputs.Track(t, chartDir)
	cmd := exec.CommandContext(t.Context(), tool("helm"), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	switch err := cmd.Run(); {
	case errors.As(err, &exit):
		return out.String(), errs.String()
	case err != nil:
		t.Fatalf("%v (test/tools/build.sh helm builds it)", err)
	}
	return out.String(), ""
}

// tryHelmOn runs Helm on the cluster, in our namespace unless the arguments name another one. Helm does not validate
// what it installs against the API server's schema. Downloading and reading the schema takes longer than everything
// else that Helm does. In testAPIServerAdmitsTheChart, the API server itself validates everything that is rendered.
func tryHelmOn(t *testing.T, c *cluster.Cluster, args ...string) (stdout, failure string) {
	t.Helper()
	if args[0] == "install" || args[0] == "upgrade" {
		args = append(args, "--disable-openapi-validation")
	}
	return helm(t, append([]string{"--kubeconfig", c.Kubeconfig(), "--namespace", namespace}, args...)...)
}

// helmOn is tryHelmOn for what must succeed.
func helmOn(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	out, failure := tryHelmOn(t, c, args...)
	if failure != "" {
		t.Fatalf("helm %s: %s\n%s", args[0], failure, out)
	}
	return out
}

// installOn installs the chart on the cluster.
func installOn(t *testing.T, c *cluster.Cluster, values string) {
	t.Helper()
	helmOn(t, c, append([]string{"install", "kube-node-ready", chartDir}, valuesFile(t, values)...)...)
}

// valuesFile writes values and returns Helm's arguments for them.
func valuesFile(t *testing.T, values string) []string {
	t.Helper()
	return helmrender.ValuesFile(t, values)
}

// The renderer prints and refuses what Helm's own program does.
func TestRendererIsHelm(t *testing.T) {
	t.Parallel()
	common := []string{"template", "kube-node-ready", chartDir, "--namespace", namespace}
	for name, args := range map[string][]string{
		"defaults":          nil,
		"an older version":  {"--kube-version", "1.29.15"},
		"an API":            append([]string{"--kube-version", "1.30.0", "--api-versions", policyAPI}, valuesFile(t, "controller: {config: {admission: {mode: policy}}}")...),
		"everything":        valuesFile(t, everything),
		"a single value":    {"--set", "controller.replicas=5"},
		"against a schema":  valuesFile(t, "contoller: {}"),
		"a rule of ours":    valuesFile(t, "controller: {config: {leaderElection: {enabled: false}}}"),
		"null":              valuesFile(t, "controller: {config: null}"),
		"a table by string": valuesFile(t, "controller: seven"),
		"no YAML":           valuesFile(t, "a: b: c"),
		"no such file":      {"--values", "nowhere.yaml"},
	} {
		args = append(slices.Clone(common), args...)
		out, failure := helm(t, args...)
		wantOut, wantFailure := helmItself(t, args...)
		if out != wantOut || failure != wantFailure {
			t.Errorf("%s: the renderer says\n%s%s\nhelm says\n%s%s", name, failure, out, wantFailure, wantOut)
		}
	}
}

// templates are what Helm rendered, by its arguments and values: many tests look at the same.
var templates sync.Map

// template runs "helm template" of release kube-node-ready with the given values and arguments, once for all tests.
func template(t *testing.T, values string, more ...string) (stdout, failure string) {
	t.Helper()
	run := sync.OnceValues(func() (stdout, failure string) {
		args := append([]string{"template", "kube-node-ready", chartDir, "--namespace", namespace, "--kube-version", "1.36.0"}, more...)
		return helm(t, append(args, valuesFile(t, values)...)...)
	})
	once, _ := templates.LoadOrStore(strings.Join(append(slices.Clone(more), values), "\x00"), run)
	return once.(func() (string, string))()
}

// objects are rendered objects by "Kind namespace/name", or "Kind name" without a namespace.
type objects map[string]*unstructured.Unstructured

// render is template with its output read; it must succeed.
func render(t *testing.T, values string, more ...string) objects {
	t.Helper()
	out, failure := template(t, values, more...)
	if failure != "" {
		t.Fatalf("helm template with\n%s\n%s", values, failure)
	}
	return read(t, out)
}

// read reads what Helm rendered, and keeps it for the dry run of everything (testEveryRendering).
func read(t *testing.T, out string) objects {
	t.Helper()
	found := objects{}
	defer func() { rendered.add(t.Name(), found) }()
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(out)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := yaml.YAMLToJSONStrict(document) // a key that is there twice, which Helm takes and kustomize does not
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		object := &unstructured.Unstructured{}
		if string(text) == "null" {
			continue
		}
		if err := object.UnmarshalJSON(text); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		key := object.GetKind() + " " + object.GetName()
		if object.GetNamespace() != "" {
			key = object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		}
		if _, twice := found[key]; twice {
			t.Errorf("%s is rendered twice", key)
		}
		found[key] = object
	}
}

// get reads one rendered object into a typed one.
func get[T any](t *testing.T, found objects, key string) *T {
	t.Helper()
	object, ok := found[key]
	if !ok {
		t.Fatalf("%s is not rendered", key)
	}
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true); err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return typed
}
