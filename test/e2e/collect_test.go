//go:build e2e

package e2e

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// collect writes what a person needs to find out why a case failed into one folder. That is what the API server holds,
// the logs of every pod and component, and the nodes' networks.
func (s *suite) collect(t *testing.T, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	dir := filepath.Join(s.artifacts, strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Log(err)
		return
	}
	save := func(file, text string, err error) {
		if err != nil {
			text += "\n" + err.Error() + "\n"
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Log(err)
		}
	}
	for file, args := range map[string][]string{
		"nodes.yaml":     {"get", "nodes", "-o", "yaml"},
		"describe-nodes": {"describe", "nodes"},
		"pods.txt":       {"get", "pods", "-A", "-o", "wide"},
		"events.txt":     {"get", "events", "-A", "--sort-by=.metadata.creationTimestamp"},
		"product.yaml":   {"-n", namespace, "get", "all,configmaps,leases,endpointslices", "-o", "yaml"},
		"workers.yaml":   {"-n", namespace, "get", "pods", "-l", "app.kubernetes.io/component=worker", "-o", "yaml"},
		"nodeclaims":     {"get", "nodeclaims,nodepools", "-o", "yaml"},
	} {
		out, err := s.cluster.Kubectl(ctx, "", args...)
		save(file, out, err)
	}
	for _, in := range []string{namespace, "kube-system"} {
		pods, err := s.client.CoreV1().Pods(in).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Log(err)
			continue
		}
		for _, pod := range pods.Items {
			out, err := s.cluster.Kubectl(ctx, "", "-n", in, "logs", pod.Name, "--all-containers", "--timestamps")
			save("log-"+pod.Name, out, err)
			if out, err := s.cluster.Kubectl(ctx, "", "-n", in, "logs", pod.Name, "--all-containers", "--previous"); err == nil {
				save("log-"+pod.Name+"-previous", out, nil)
			}
		}
	}
	for name, node := range s.cluster.Nodes() {
		for file, command := range map[string][]string{
			"iptables": {"iptables-save", "-c"}, "network": {"sh", "-c", "ip addr; ip route; conntrack -L"}, "processes": {"ps", "axwf"},
		} {
			out, err := node.Run(ctx, command[0], command[1:]...)
			save(name+"-"+file, out, err)
		}
	}
	// The logs of the components are on the machine's disk.
	for _, from := range []string{filepath.Join(s.cluster.Dir(), "control-plane", "log"), filepath.Join(s.cluster.Dir(), "prometheus", "prometheus.log")} {
		_ = exec.CommandContext(ctx, "cp", "-r", from, dir).Run()
	}
	for name, node := range s.cluster.Nodes() {
		logs, _ := filepath.Glob(filepath.Join(node.Dir, "log", "*.log"))
		for _, log := range logs {
			_ = exec.CommandContext(ctx, "cp", log, filepath.Join(dir, name+"-"+filepath.Base(log))).Run()
		}
	}
	t.Logf("evidence: %s", dir)
}

// restore waits, after a failed case has taken back what it broke, until the nodes are well.
func (s *suite) restore(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, name := range baseNodes {
		if err := poll(ctx, 30*time.Second, func() error { return s.verified(ctx, name) }); err != nil {
			t.Logf("%s is not verified after the failed case: %v", name, err)
		}
	}
}
