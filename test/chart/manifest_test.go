package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

func runMake(t *testing.T, args ...string) string {
	t.Helper()
	inputs.Track(t, "../../Makefile")
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"--no-print-directory", "-C", "../.."}, args...)...)
	// A make above this test hands down its own variables.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "VERSION=") })
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make %s: %v\n%s", args, err, out)
	}
	return string(out)
}

// The rendered manifest installs all by itself, and applying it again changes nothing.
func testManifestIsApplied(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	path := filepath.Join(t.TempDir(), "kube-node-ready.yaml")
	runMake(t, "manifest", "MANIFEST="+path, "NAMESPACE=verification", "VALUES=--set controller.replicas=3")
	if out, stderr, err := kubectl(t, c, "apply", "-f", path); err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr)
	}
	d, err := client.AppsV1().Deployments("verification").Get(t.Context(), "kube-node-ready-controller", metav1.GetOptions{})
	if err != nil || *d.Spec.Replicas != 3 {
		t.Fatalf("%v, %+v", err, d)
	}
	generations := func() string {
		t.Helper()
		out, stderr, err := kubectl(t, c, "get", "deployments,poddisruptionbudgets,validatingadmissionpolicies", "-A",
			"-o", "custom-columns=KIND:.kind,NAME:.metadata.name,GENERATION:.metadata.generation")
		if err != nil || strings.Count(out, "\n") < 5 {
			t.Fatalf("%v\n%s%s", err, out, stderr)
		}
		return out
	}
	before := generations()
	if out, stderr, err := kubectl(t, c, "apply", "-f", path); err != nil || strings.Contains(out, " created\n") {
		t.Fatalf("applied again: %v\n%s%s", err, out, stderr)
	}
	if after := generations(); after != before {
		t.Errorf("applied again:\n%safter\n%s", after, before)
	}
}

// There is no container engine here: what it would be told is what is tested.
func TestImagesArePushed(t *testing.T) {
	out := runMake(t, "docker-push", "DOCKER=echo engine", "REGISTRY=registry.example.com/a", "DOCKER_TAG=v9")
	for _, image := range []string{"kube-node-ready:v9", "kube-node-ready-worker:v9"} {
		for _, want := range []string{"-t registry.example.com/a/" + image + " .\n", "engine push registry.example.com/a/" + image + "\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("it does not run %q but\n%s", want, out)
			}
		}
	}
}
