//go:build e2e

// Package e2e proves the product on a real cluster: kubelets, containerd, CoreDNS, kube-proxy,
// Helm, Prometheus and Karpenter, with faults made in the nodes' own networks. It needs root.
// docs/design/e2e.md says what each case proves.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/realnode"
)

// The names that the spec fixes. They are written out here rather than imported: a suite that
// takes them from the product cannot see them change.
const (
	taintKey       = "node-ready/unverified"
	verifiedLabel  = "node-ready/verified"
	recordKey      = "node-ready/record"
	conditionType  = "node-ready/Verified"
	release        = "kube-node-ready"
	namespace      = "kube-node-ready"
	controllerName = "kube-node-ready-controller"
)

var gatingTaint = corev1.Taint{Key: taintKey, Value: "true", Effect: corev1.TaintEffectNoSchedule}

// suite is what the cases share: one cluster, on which each leaves every node verified.
type suite struct {
	root, artifacts string
	image           string // the product's, as the chart names it
	archive         string // the product's, as a file
	cluster         *realnode.Cluster
	client          kubernetes.Interface
	watch           *podWatch
	prometheus      *prometheus
	karpenter       *karpenter
	lastFailed      map[string]checkState // the report that broken last compared
	results         []result
}

type result struct {
	name    string
	took    time.Duration
	outcome string
}

// run runs one case and notes how long it took. A case that fails leaves its evidence behind,
// and the next one starts from healthy nodes all the same.
func (s *suite) run(t *testing.T, name string, limit time.Duration, test func(context.Context, *testing.T)) {
	t.Helper()
	began := time.Now()
	ran := false
	passed := t.Run(name, func(t *testing.T) {
		ran = true
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		// The evidence is collected before the case's own cleanups take back what it broke.
		t.Cleanup(func() {
			if t.Failed() {
				s.restore(t)
			}
		})
		defer func() {
			if t.Failed() {
				s.collect(t, name)
			}
		}()
		test(ctx, t)
	})
	if !ran {
		return // left out by -run
	}
	outcome := "passed"
	if !passed {
		outcome = "FAILED"
	}
	s.results = append(s.results, result{name, time.Since(began), outcome})
}

// whole runs a case that a smoke run leaves out.
func (s *suite) whole(t *testing.T, name string, limit time.Duration, test func(context.Context, *testing.T)) {
	t.Helper()
	if !*smoke {
		s.run(t, name, limit, test)
	}
}

// summary is the last thing that is said before go test's own result.
func (s *suite) summary() {
	failed := 0
	fmt.Printf("\n%-58s %9s  %s\n", "case", "seconds", "outcome")
	for _, r := range s.results {
		fmt.Printf("%-58s %9.1f  %s\n", r.name, r.took.Seconds(), r.outcome)
		if r.outcome != "passed" {
			failed++
		}
	}
	fmt.Printf("%d passed, %d failed\n", len(s.results)-failed, failed)
}

// setup brings up the control plane and DNS, without a node yet.
func setup(ctx context.Context, t *testing.T) *suite {
	t.Helper()
	root, err := cluster.ModuleRoot()
	must(t, err)
	s := &suite{root: root, artifacts: filepath.Join(root, "dist", "e2e")}
	must(t, os.RemoveAll(s.artifacts))
	s.archive = os.Getenv("E2E_IMAGE")
	if s.archive == "" {
		t.Fatal("E2E_IMAGE must name the product's image archive; \"make e2e\" sets it")
	}
	s.image = s.chartImage(ctx, t)
	built := filepath.Join(root, ".cache", "realnode")
	s.cluster, err = realnode.Start(ctx, realnode.Options{
		Dir:    filepath.Join(root, ".cache", "cluster"),
		Images: []string{filepath.Join(built, "pause.tar"), filepath.Join(built, "coredns.tar"), s.archive},
		// A lost node is noticed within seconds, not within the default's 50.
		ControlPlane: cluster.Options{ControllerManagerArgs: []string{"--node-monitor-grace-period=16s", "--node-monitor-period=1s"}},
		Log:          os.Stdout,
	})
	must(t, err)
	s.client = s.cluster.Client
	must(t, s.cluster.InstallDNS(ctx))
	s.watch = watchPods(ctx, s.client)
	return s
}

// addNodes boots nodes that register with the gating taint, and waits until they are Ready.
func (s *suite) addNodes(ctx context.Context, t *testing.T, o realnode.NodeOptions, names ...string) {
	t.Helper()
	nodes := map[string]realnode.NodeOptions{}
	for _, name := range names {
		nodes[name] = o
	}
	s.addEach(ctx, t, nodes)
}

// addEach is addNodes with options for each.
func (s *suite) addEach(ctx context.Context, t *testing.T, nodes map[string]realnode.NodeOptions) {
	t.Helper()
	errs := make(chan error, len(nodes))
	for name, o := range nodes {
		o.Taints = append(slices.Clone(o.Taints), gatingTaint)
		go func() {
			_, err := s.cluster.AddNode(ctx, name, o)
			if err == nil {
				err = s.cluster.AwaitNode(ctx, name, 40*time.Second)
			}
			errs <- err
		}()
	}
	for range nodes {
		must(t, <-errs)
	}
}

// removeNode takes a node's machine and object away.
func (s *suite) removeNode(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	if n := s.cluster.Nodes()[name]; n != nil {
		must(t, s.cluster.RemoveNode(ctx, n))
	}
	s.kubectl(ctx, t, "delete", "node", name, "--ignore-not-found")
}

func (s *suite) node(name string) *realnode.Node { return s.cluster.Nodes()[name] }

func (s *suite) kubectl(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.cluster.Kubectl(ctx, "", args...)
	must(t, err)
	return strings.TrimSpace(out)
}

func (s *suite) apply(ctx context.Context, t *testing.T, manifest string) {
	t.Helper()
	_, err := s.cluster.Kubectl(ctx, manifest, "apply", "--server-side", "-f", "-")
	must(t, err)
}

// helm runs Helm against the cluster.
func (s *suite) helm(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.helmCommand(ctx, args...)
	must(t, err)
	return out
}

func (s *suite) helmCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.root, ".cache", "tools", "bin", "helm"), args...)
	home := filepath.Join(s.root, ".cache", "cluster", "helm")
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	if s.cluster != nil {
		cmd.Args = append(cmd.Args, "--kubeconfig", s.cluster.ControlPlane.Kubeconfig())
		if !slices.Contains(args, "--namespace") {
			cmd.Args = append(cmd.Args, "--namespace", namespace)
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func (s *suite) chart() string { return filepath.Join(s.root, "deploy", "helm", "kube-node-ready") }

func (s *suite) values() string {
	return filepath.Join(s.root, "test", "e2e", "testdata", "values.yaml")
}

// deploy installs or upgrades the release with the suite's values and the settings given
// (--set-json's key=value), and waits until it is rolled out.
func (s *suite) deploy(ctx context.Context, t *testing.T, settings ...string) {
	t.Helper()
	args := []string{"upgrade", "--install", release, s.chart(), "--values", s.values(), "--wait", "--timeout", "90s"}
	for _, setting := range settings {
		args = append(args, "--set-json", setting)
	}
	s.helm(ctx, t, args...)
}

// chartImage is the image that the chart's defaults name.
func (s *suite) chartImage(ctx context.Context, t *testing.T) string {
	t.Helper()
	out := s.helm(ctx, t, "template", release, s.chart(), "--kube-version", "1.36", "--show-only", "templates/deployment.yaml")
	for line := range strings.Lines(out) {
		if image, ok := strings.CutPrefix(strings.TrimSpace(line), "image: "); ok {
			return strings.Trim(image, `"`)
		}
	}
	t.Fatalf("the chart's Deployment names no image:\n%s", out)
	return ""
}

// leader is the name of the controller pod that holds the Lease.
func (s *suite) leader(ctx context.Context, t *testing.T) string {
	t.Helper()
	lease, err := s.client.CoordinationV1().Leases(namespace).Get(ctx, controllerName, metav1.GetOptions{})
	must(t, err)
	if lease.Spec.HolderIdentity == nil {
		t.Fatal("the Lease has no holder")
	}
	// controller-runtime's identity is <host name>_<random>, and a pod's host name is its own.
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return pod
}

// eventually tries until it works; the last error is the failure.
func eventually(ctx context.Context, t *testing.T, limit time.Duration, what string, try func() error) {
	t.Helper()
	if err := poll(ctx, limit, try); err != nil {
		t.Fatalf("%s: not within %s: %v", what, limit, err)
	}
}

func poll(ctx context.Context, limit time.Duration, try func() error) error {
	for deadline := time.Now().Add(limit); ; {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// throughout insists that something holds for a while.
func throughout(ctx context.Context, t *testing.T, period time.Duration, what string, check func() error) {
	t.Helper()
	for end := time.Now().Add(period); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		if err := check(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		must(t, ctx.Err())
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}
