package docs

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The versions that the page names as tested are those that test/tools pins.
func TestCompatibilityNamesWhatIsTested(t *testing.T) {
	page := read(t, filepath.Join(root, "docs", "design", "compatibility.md"))
	for what, pin := range map[string]struct{ tool, module string }{
		"Kubernetes: kube-apiserver, kube-controller-manager, kube-scheduler, kubectl": {"kubernetes", "k8s.io/kubernetes"},
		"kubelet, kube-proxy (iptables)":                                               {"kubernetes", "k8s.io/kubernetes"},
		"etcd":                                                                         {"etcd", "go.etcd.io/etcd/server/v3"},
		"CoreDNS":                                                                      {"coredns", "github.com/coredns/coredns"},
		"containerd":                                                                   {"containerd", "github.com/containerd/containerd/v2"},
		"Helm":                                                                         {"helm", "helm.sh/helm/v3"},
		"Prometheus, promtool":                                                         {"prometheus", "github.com/prometheus/prometheus"},
		"Karpenter, with its kwok provider":                                            {"karpenter", "sigs.k8s.io/karpenter"},
	} {
		mod := read(t, filepath.Join(root, "test", "tools", pin.tool, "go.mod"))
		match := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(pin.module) + ` v(\S+)`).FindStringSubmatch(mod)
		if match == nil {
			t.Fatalf("test/tools/%s pins no %s", pin.tool, pin.module)
		}
		version := match[1]
		if pin.tool == "prometheus" { // its module v0.313.5 is the release 3.13.5
			version = regexp.MustCompile(`^0\.(\d)(\d\d)\.`).ReplaceAllString(version, "$1.$2.")
		}
		if row := fmt.Sprintf("| %s | %s |", what, version); !strings.Contains(page, row) {
			t.Errorf("docs/design/compatibility.md has no row %q", row)
		}
	}
}

// What the chart says of itself is what the pages say.
func TestChartsVersions(t *testing.T) {
	chart := read(t, filepath.Join(root, "deploy", "helm", "kube-node-ready", "Chart.yaml"))
	field := func(pattern string) string {
		match := regexp.MustCompile("(?m)^" + pattern).FindStringSubmatch(chart)
		if match == nil {
			t.Fatalf("Chart.yaml has no %s", pattern)
		}
		return match[1]
	}
	oldest := field(`kubeVersion: ">=(\d+\.\d+)`)
	for page, want := range map[string]string{
		"docs/design/compatibility.md":          "asks for " + oldest + " or later",
		"deploy/helm/kube-node-ready/README.md": "Kubernetes " + oldest + " or later",
		"docs/CHANGELOG.md":                     "## " + field(`version: (\S+)`),
	} {
		if !strings.Contains(read(t, filepath.Join(root, page)), want) {
			t.Errorf("%s lacks %q", page, want)
		}
	}
}
