// Package examples holds tests of the examples that need a cluster.
package examples

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// TestRunControllerLocal runs the script with the example configuration and the rights of the chart's controller: a
// worker runs on the tainted node, the log says what would be done, and the node stays as it is. With --dry-run=false
// the node is verified.
func TestRunControllerLocal(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{})
	must(t, err)
	t.Cleanup(c.Stop)
	dns, err := c.StartDNS(ctx, nil)
	must(t, err)
	must(t, install.Rights(ctx, c))
	images, err := install.Images()
	must(t, err)
	program, err := install.Binary("kube-node-ready-controller")
	must(t, err)
	agent, err := nodeagent.Start(ctx, c, nodeagent.Options{Images: images, DNS: dns})
	must(t, err)
	t.Cleanup(agent.Stop)
	kubeconfig, err := c.KubeconfigFor(ctx, install.Namespace, install.ControllerAccount)
	must(t, err)

	config := example(t)

	before, err := agent.AddNode(ctx, nodeagent.NodeSpec{Name: "n", Taints: []corev1.Taint{{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}}})
	must(t, err)

	client, err := kubernetes.NewForConfig(c.Config())
	must(t, err)
	node := func() *corev1.Node {
		n, err := client.CoreV1().Nodes().Get(ctx, before.Name, metav1.GetOptions{})
		must(t, err)
		return n
	}
	run := func(done func(log string) bool, args ...string) string {
		var log output
		cmd := exec.CommandContext(ctx, "./run-controller-local.sh", args...)
		cmd.Env = append(os.Environ(), "BIN="+filepath.Dir(program), "KUBECONFIG="+kubeconfig, "CONFIG_FILE="+config)
		cmd.Stdout, cmd.Stderr = &log, &log
		must(t, cmd.Start())
		for !done(log.String()) {
			select {
			case <-ctx.Done():
				t.Fatalf("it did not come so far with %q:\n%s", args, log.String())
			case <-time.After(50 * time.Millisecond):
			}
		}
		time.Sleep(time.Second) // for a write that must not come
		must(t, cmd.Process.Signal(syscall.SIGTERM))
		if err := cmd.Wait(); err != nil {
			t.Errorf("the script ended with %v:\n%s", err, log.String())
		}
		return log.String()
	}

	const decisions = "\tdecided\t"
	if log := run(func(log string) bool { return strings.Contains(log, "dry run") }); strings.Contains(log, decisions) {
		t.Errorf("the log is one of level debug:\n%s", log)
	}
	if n := node(); len(n.Spec.Taints) != 1 || n.Annotations["node-ready/record"] != "" || n.Labels["node-ready/verified"] != "" {
		t.Errorf("the node changed: taints %v, annotations %v, labels %v", n.Spec.Taints, n.Annotations, n.Labels)
	}
	log := run(func(string) bool { return node().Labels["node-ready/verified"] == "true" }, "--dry-run=false", "--log-level=debug")
	if !strings.Contains(log, decisions) {
		t.Errorf("the log at level debug tells of no decision:\n%s", log)
	}
	if n := node(); len(n.Spec.Taints) != 0 {
		t.Errorf("taints %v on a verified node", n.Spec.Taints)
	}
}

// example is the example configuration with the image and with ports of this machine.
func example(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("controller-config.yaml")
	must(t, err)
	c := map[string]any{}
	must(t, yaml.Unmarshal(data, &c))
	ports, err := cluster.FreePorts("127.0.0.1", 2)
	must(t, err)
	repository, tag, _ := strings.Cut(install.Image, ":")
	c["worker"].(map[string]any)["image"] = map[string]string{"repository": repository, "tag": tag} //nolint:forcetypeassert // a panic says enough
	c["metrics"] = map[string]any{"port": ports[0]}
	c["health"] = map[string]any{"port": ports[1]}
	changed, err := yaml.Marshal(c)
	must(t, err)
	path := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(path, changed, 0o600))
	return path
}

// TestRunControllerLocalExplains what it needs and does not have.
func TestRunControllerLocalExplains(t *testing.T) {
	program, err := install.Binary("kube-node-ready-controller")
	must(t, err)
	cmd := exec.CommandContext(t.Context(), "./run-controller-local.sh")
	cmd.Env = append(os.Environ(), "BIN="+filepath.Dir(program), "KUBECONFIG=/nowhere/a:/nowhere/b")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "/nowhere/a:/nowhere/b is not a file; give one with KUBECONFIG") {
		t.Errorf("%v: %s", err, out)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// output is what a process writes while it runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
