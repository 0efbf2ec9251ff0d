package reporter

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/reporter"
)

const examples = "../../examples"

// command runs a program with kubectl on its path, against the test's cluster.
func command(t *testing.T, program string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", control.Kubeconfig()}, args...)...)
	cmd.Env = []string{"PATH=" + control.Bin() + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	var out, fault bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &fault
	err = cmd.Run()
	return out.String(), fault.String(), err
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, fault, err := command(t, filepath.Join(control.Bin(), "kubectl"), args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, fault)
	}
	return out
}

// TestExamples applies both guides' examples: to a cluster without the agent, to one with it, and again.
func TestExamples(t *testing.T) {
	kubectl(t, "apply", "--server-side", "-f", "testdata/nodereadinessrules.yaml")
	kubectl(t, "wait", "--for=condition=Established", "crd/nodereadinessrules.readiness.node.x-k8s.io")
	kubectl(t, "create", "namespace", "falco")
	for _, e := range []struct {
		folder, script, namespace, daemonSet string
		sidecar, daemonSetVariant, rule      string
		rights                               []string
		conditionType, endpoint              string
	}{
		{"cni-readiness", "apply-calico.sh", "kube-system", "calico-node", "cni-status-patcher", "cni-reporter", "network-readiness-rule",
			[]string{"calico-node", "cni-reporter"}, "projectcalico.org/CalicoReady", "http://localhost:9099/readiness"},
		{"security-agent-readiness", "apply-falco.sh", "falco", "falco", "security-status-patcher", "security-agent-reporter", "security-agent-readiness-rule",
			[]string{"falco", "security-agent-reporter"}, "falco.org/FalcoReady", "http://localhost:8765/healthz"},
	} {
		t.Run(e.folder, func(t *testing.T) {
			folder := filepath.Join(examples, e.folder)
			script := filepath.Join(folder, e.script)
			_, stderr, err := command(t, script)
			if err == nil || !strings.Contains(stderr, "there is no DaemonSet "+e.daemonSet+" in namespace "+e.namespace) {
				t.Errorf("without the agent: %v: %s", err, stderr)
			}
			agent := installAgent(t, e.namespace, e.daemonSet)
			for range 2 {
				if stdout, stderr, err := command(t, script); err != nil || stderr != "" {
					t.Fatalf("%v: %s%s", err, stdout, stderr)
				}
			}
			patched := daemonSet(t, e.namespace, e.daemonSet)
			checkReporter(t, patched, e.sidecar, e.conditionType, e.endpoint)
			if len(patched.Spec.Template.Spec.Containers) != 2 || !slices.ContainsFunc(patched.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == agent.Name }) {
				t.Errorf("the containers are %+v", patched.Spec.Template.Spec.Containers)
			}
			kubectl(t, "get", "nodereadinessrule", e.rule)

			files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
			if err != nil || len(files) < 5 {
				t.Fatal(err, files)
			}
			for _, file := range files {
				if !strings.HasSuffix(file, "-sidecar.yaml") { // a patch
					kubectl(t, "apply", "--validate=strict", "-f", file)
				}
			}
			endpoint := strings.Replace(e.endpoint, "localhost:8765", "falco-health.falco.svc:8765", 1)
			checkReporter(t, daemonSet(t, e.namespace, e.daemonSetVariant), e.sidecar, e.conditionType, endpoint)
			for _, account := range e.rights {
				as := "--as=system:serviceaccount:" + e.namespace + ":" + account
				if out := kubectl(t, "auth", "can-i", "patch", "nodes", "--subresource=status", as); strings.TrimSpace(out) != "yes" {
					t.Errorf("%s may not patch the status of nodes: %s", account, out)
				}
			}

			kubectl(t, "patch", "daemonset", e.daemonSet, "-n", e.namespace, "--type=merge", "-p",
				`{"metadata":{"ownerReferences":[{"apiVersion":"operator.example.com/v1","kind":"Installation","name":"default","uid":"u"}]}}`)
			if _, stderr, err := command(t, script); err == nil || !strings.Contains(stderr, "an operator owns the DaemonSet (Installation)") {
				t.Errorf("with an operator: %v: %s", err, stderr)
			}
		})
	}
}

// installAgent makes a DaemonSet as the agent's own manifest does, and returns its container.
func installAgent(t *testing.T, namespace, name string) corev1.Container {
	t.Helper()
	labels := map[string]string{"app": name}
	container := corev1.Container{Name: name, Image: "agent"}
	_, err := k8s.AppsV1().DaemonSets(namespace).Create(t.Context(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			ServiceAccountName: name, Containers: []corev1.Container{container},
			Tolerations: []corev1.Toleration{{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists}, {Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return container
}

func daemonSet(t *testing.T, namespace, name string) *appsv1.DaemonSet {
	t.Helper()
	ds, err := k8s.AppsV1().DaemonSets(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// checkReporter looks at a DaemonSet's reporter: its configuration is complete and it comes to every node that a rule holds.
func checkReporter(t *testing.T, ds *appsv1.DaemonSet, container, conditionType, endpoint string) {
	t.Helper()
	spec := ds.Spec.Template.Spec
	if !slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == "" && t.Operator == corev1.TolerationOpExists && (t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
	}) {
		t.Errorf("%s does not tolerate the rule's taint: %+v", ds.Name, spec.Tolerations)
	}
	i := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == container })
	if i < 0 {
		t.Fatalf("%s has no container %s", ds.Name, container)
	}
	c := spec.Containers[i]
	config, warnings, err := reporter.FromEnv(func(name string) string {
		for _, e := range c.Env {
			if e.Name == name && e.ValueFrom != nil && e.ValueFrom.FieldRef.FieldPath == "spec.nodeName" {
				return "node-1"
			} else if e.Name == name {
				return e.Value
			}
		}
		return ""
	})
	if err != nil || len(warnings) > 0 || config.ConditionType != conditionType || config.Endpoint.String() != endpoint || config.Grace < 10*time.Second {
		t.Errorf("%s: %+v, %q, %v", ds.Name, config, warnings, err)
	}
	if len(c.Command)+len(c.Args) > 0 || !strings.HasPrefix(c.Image, "ghcr.io/kube-node-ready/kube-node-ready:"+appVersion(t)) {
		t.Errorf("%s: image %s, command %q %q", ds.Name, c.Image, c.Command, c.Args)
	}
	for _, other := range spec.Containers {
		if spec.HostNetwork && len(other.Ports) > 0 {
			t.Errorf("%s declares ports of the host: %+v", ds.Name, other.Ports)
		}
	}
}

// appVersion is the version of the image that the chart of this commit installs.
func appVersion(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("../../deploy/helm/kube-node-ready/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var chart struct{ AppVersion string }
	if err := yaml.Unmarshal(content, &chart); err != nil {
		t.Fatal(err)
	}
	return chart.AppVersion
}
