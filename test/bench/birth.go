//go:build bench

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// birthLabel selects, by its value, how a node is tainted at its creation: policy and webhook are installed side by side.
const birthLabel = "bench"

// births is a case of nodes that are created one after the other: what the taint at their creation adds to each.
func births(name, what string, nodes int) benchCase {
	by := func(mode string) side {
		return side{mode, func(ctx context.Context, b *bed, r *result) error { return born(ctx, b, r, mode) }}
	}
	return benchCase{name: name, what: what, nodes: nodes, prepare: installBirths,
		plane: cluster.Options{WithoutControllerManager: true, WithoutScheduler: true}, sides: []side{by("none"), by("policy"), by("webhook")}}
}

// born is a turn: every node must come out as its side says.
func born(ctx context.Context, b *bed, r *result, mode string) error {
	prefix := b.prefix()
	var took []float64
	for i := range r.Nodes {
		began := time.Now()
		if err := birth(ctx, b, mode, prefix+"-"+strconv.Itoa(i), nil); err != nil {
			return err
		}
		took = append(took, float64(time.Since(began))/float64(time.Millisecond))
	}
	slices.Sort(took)
	at := func(q float64) float64 { return took[int(q*float64(len(took)-1))] }
	r.Values[metricBirthP50], r.Values[metricBirthP99], r.Values[metricBirthMax] = at(.5), at(.99), at(1)
	return b.client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: birthLabel})
}

func birth(ctx context.Context, b *bed, mode, name string, dryRun []string) error {
	n, err := b.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{birthLabel: mode}}},
		metav1.CreateOptions{DryRun: dryRun})
	if err != nil {
		return err
	}
	if tainted := len(n.Spec.Taints) == 1; tainted != (mode != "none") {
		return fmt.Errorf("node %s of side %s came out with the taints %v", name, mode, n.Spec.Taints)
	}
	return nil
}

// installBirths installs what the chart renders of policy and webhook, each for nodes of its own, and starts a controller that
// serves the latter. Its Service's address is one of loopback, so its port is the controller's.
func installBirths(ctx context.Context, b *bed, _ int) error {
	ports, err := cluster.FreePorts("127.0.0.1", 1)
	if err != nil {
		return err
	}
	policy, err := render(ctx, map[string]any{"fullnameOverride": "bench", "controller": map[string]any{"config": birthConfig("policy")}},
		"--show-only", "templates/taintpolicy.yaml")
	if err != nil {
		return err
	}
	config := birthConfig("webhook")
	config["admission"].(map[string]any)["webhook"] = map[string]any{"port": ports[0]}
	hook, err := render(ctx, map[string]any{
		"controller": map[string]any{"replicas": 0, "config": config},
		"rules":      map[string]any{"installCRD": false},
		"webhook":    map[string]any{"service": map[string]any{"port": ports[0], "clusterIP": b.cluster.ServiceIP(50)}},
	})
	if err != nil {
		return err
	}
	for _, manifest := range [][]byte{policy, hook} {
		if err := install.Apply(ctx, b.cluster, manifest); err != nil {
			return err
		}
	}
	settings, err := install.Configuration(hook)
	if err != nil {
		return err
	}
	if _, err := b.start(ctx, "webhook", settings, ""); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, mode := range []string{"policy", "webhook"} { // until the API server has learnt of both
		for {
			err := birth(ctx, b, mode, "trial", []string{metav1.DryRunAll})
			if err == nil {
				break
			}
			if pause(ctx, 100*time.Millisecond) != nil {
				return err
			}
		}
	}
	return nil
}

// birthConfig taints nodes in one way. They wait for a condition that nobody writes, so that the API server has no other work.
func birthConfig(mode string) map[string]any {
	return map[string]any{
		"admission": map[string]any{"mode": mode},
		"rules":     map[string]any{"enabled": false},
		"nodeManagement": map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]any{birthLabel: mode}},
			"prerequisites": map[string]any{"nodeReady": true}},
	}
}

// render is helm template of the chart.
func render(ctx context.Context, values map[string]any, args ...string) ([]byte, error) {
	helm, err := cluster.Tool("helm")
	if err != nil {
		return nil, err
	}
	root, err := cluster.ModuleRoot()
	if err != nil {
		return nil, err
	}
	content, err := yaml.Marshal(values)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, helm, append([]string{"template", "kube-node-ready", "deploy/helm/kube-node-ready", "--no-hooks",
		"--namespace", install.Namespace, "--kube-version", "1.36.0", "--values", "-"}, args...)...)
	var failure bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stderr = root, bytes.NewReader(content), &failure
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("helm template: %w: %s", err, failure.String())
	}
	return out, nil
}
