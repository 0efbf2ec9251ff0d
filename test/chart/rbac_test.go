package chart

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// What may be done under each configuration, one line per rule. A change of these files is a
// change of docs/security.md.
func TestPermissionsAreTheLeast(t *testing.T) {
	configurations := map[string]string{
		"default": "",
		"daemonset": `
deploymentMode: daemonset
controller: {config: {nodeManagement: {prerequisites: {csiNodes: [{driver: a.io}], pods: [{namespace: a, selector: {matchLabels: {a: b}}, currentRevision: true}]}}}}`,
		"evicting":    "controller: {config: {nodeManagement: {taints: [{key: a.io/one, effect: NoExecute}]}}}",
		"backfilling": "controller: {config: {admission: {backfill: true}}}",
		"deleting":    "controller: {config: {nodeManagement: {deleteFailedNodes: true}}}",
		"deleting-dry-run": `
controller: {config: {nodeManagement: {deleteFailedNodes: true, remediation: {dryRun: true}}}}`,
		"prerequisites": `
controller:
  extraRules: [{apiGroups: [example.com], resources: [oxen], verbs: [list, watch]}]
  config:
    leaderElection: {namespace: leases}
    nodeManagement:
      prerequisites:
        pods:
          - {namespace: kube-system, selector: {matchLabels: {k8s-app: cilium}}, currentRevision: true}
          - {namespace: kube-system, selector: {matchLabels: {k8s-app: kube-proxy}}}
        resources:
          - {apiVersion: cilium.io/v2, kind: CiliumNode, condition: Ready}
          - {apiVersion: example.com/v1, kind: Policy, namespace: policies, condition: Ready}
    profiles:
      - name: gpu
        nodeSelector: {matchLabels: {gpu: "true"}}
        prerequisites:
          pods: [{namespace: gpu-operator, selector: {matchLabels: {app: nvidia-driver}}}]`,
		// Each of these needs its own permission and no other, and is asked for once although two sections have it.
		"csi-nodes": `
controller:
  config:
    nodeManagement: {prerequisites: {csiNodes: [{driver: ebs.csi.aws.com, allocatable: true}, {driver: efs.csi.aws.com}]}}
    profiles:
      - {name: gpu, nodeSelector: {matchLabels: {gpu: "true"}}, prerequisites: {csiNodes: [{driver: efs.csi.aws.com}]}}`,
		"daemonsets-auto": `
controller:
  config:
    nodeManagement: {prerequisites: {daemonSets: auto}}
    profiles:
      - {name: gpu, nodeSelector: {matchLabels: {gpu: "true"}}, prerequisites: {daemonSets: {mode: auto, exclude: [{namespace: a, name: b}]}}}`,
		"daemonsets-named": `
controller:
  config:
    nodeManagement: {prerequisites: {daemonSets: [{namespace: kube-system, name: cilium}, {namespace: gpu-operator, name: nvidia-driver}]}}
    profiles:
      - {name: gpu, nodeSelector: {matchLabels: {gpu: "true"}}, prerequisites: {daemonSets: {mode: none}}}
      - {name: spot, nodeSelector: {matchLabels: {spot: "true"}}, prerequisites: {daemonSets: none}}`,
		// One whose namespace is not known is read in the whole cluster; what one provides is read as elsewhere.
		"daemonsets-any-of": `
controller: {config: {nodeManagement: {prerequisites: {daemonSets: [{anyOf: [{namespace: a, name: d}, {namespace: b, name: d}]}]}}}}`,
		"daemonsets-provide": `
controller: {config: {nodeManagement: {prerequisites: {daemonSets: {mode: none, named: [{namespace: a, name: d, provides: {csiNodes: [{driver: disk.example.com}], allocatable: {a/b: 1}}}]}}}}}`,
		"webhook":        "controller: {config: {admission: {mode: webhook}}}",
		"secure-metrics": "controller: {config: {metrics: {secure: true}}}",
		"resource-slices": `
controller: {config: {nodeManagement: {prerequisites: {resourceSlices: [{driver: gpu.nvidia.com}]}}}}`,
		"allocatable": `
controller: {config: {nodeManagement: {prerequisites: {nodeReady: true, allocatable: {nvidia.com/gpu: 1}}}}}`,
		"checks": `
worker:
  extraRules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]
controller:
  config:
    worker:
      checks:
        - {name: dns, type: dns, dns: {resolver: endpoints}}
        - {name: dns-2, type: dns, dns: {resolver: service, service: dns/coredns}}
        - {name: plain, type: dns}
        - {name: peers, type: peers, peers: {selector: app=web, port: 80}}
        - {name: dns-peers, type: peers, peers: {namespace: dns, selector: app=dns, port: 53}}
    profiles:
      - name: gpu
        nodeSelector: {matchLabels: {gpu: "true"}}
        checks: [{name: shop, type: serviceDiscovery, serviceDiscovery: {namespace: shop, service: cart}}]`,
	}
	for _, d := range config.Presets() {
		configurations["preset-"+string(d.Name)] = fmt.Sprintf("controller: {config: {nodeManagement: {presets: [%s]}}}", d.Name)
	}
	for name, values := range configurations {
		t.Run(name, func(t *testing.T) {
			golden := filepath.Join("testdata", "rbac-"+name+".golden")
			compareGenerated(t, golden, func() ([]byte, error) { return permissions(t, render(t, values)), nil })
		})
	}
}

// The presets of a profile need the same, and those of several sections need it once.
func TestPresetsOfProfilesAreGranted(t *testing.T) {
	const profile = "profiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, presets: [cilium, ebs-csi]}]"
	here := permissions(t, render(t, "controller: {config: {nodeManagement: {presets: [cilium, ebs-csi]}}}"))
	for _, values := range []string{
		"controller: {config: {" + profile + "}}",
		"controller: {config: {nodeManagement: {presets: [ebs-csi]}, " + profile + "}}",
		// The same written out.
		`controller: {config: {worker: {checks: [{name: p, type: peers, peers: {namespace: kube-system, selector: a=b, port: 53}}, {name: d, type: serviceDiscovery},
			{name: e, type: dns, dns: {resolver: endpoints}}]},
			nodeManagement: {prerequisites: {daemonSets: {mode: none, named: [{namespace: kube-system, name: x, provides: {csiNodes: [{driver: d}]}}]}}}}}`,
	} {
		if got := permissions(t, render(t, values)); string(got) != string(here) {
			t.Errorf("%s\ngrants\n%s\nand not\n%s", values, got, here)
		}
	}
}

// Before Kubernetes 1.35 the zones of peers are read from the nodes.
func TestPeersReadZonesFromNodesOnlyWherePodsHaveNone(t *testing.T) {
	const values = "controller: {config: {worker: {checks: [{name: peers, type: peers, peers: {selector: app=web, port: 80}}]}}}"
	for version, want := range map[string]bool{"1.34.2": true, "v1.35.0": false, "1.36.3": false} {
		out, failure := template(t, values, "--kube-version", version)
		if failure != "" {
			t.Fatal(failure)
		}
		if got := strings.Contains(out, "resources:\n    - nodes\n    verbs:\n    - list"); got != want {
			t.Errorf("Kubernetes %s: workers may list nodes: %v, want %v", version, got, want)
		}
	}
}

// permissions lists what the bound roles allow: subject, where, verbs, resources.
func permissions(t *testing.T, found objects) []byte {
	var lines []string
	add := func(subject rbacv1.Subject, where string, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			lines = append(lines, subject.Name+" in "+where+": "+ruleText(rule))
		}
	}
	for key, object := range found {
		switch object.GetKind() {
		case "ClusterRoleBinding":
			binding := get[rbacv1.ClusterRoleBinding](t, found, key)
			role := get[rbacv1.ClusterRole](t, found, "ClusterRole "+binding.RoleRef.Name)
			add(binding.Subjects[0], "the cluster", role.Rules)
		case "RoleBinding":
			binding := get[rbacv1.RoleBinding](t, found, key)
			role := get[rbacv1.Role](t, found, "Role "+binding.Namespace+"/"+binding.RoleRef.Name)
			add(binding.Subjects[0], binding.Namespace, role.Rules)
		}
	}
	slices.Sort(lines)
	return []byte(strings.Join(lines, "\n") + "\n")
}

// ruleText is a rule in one line.
func ruleText(rule rbacv1.PolicyRule) string {
	var resources []string
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			if group != "" {
				resource += "." + group
			}
			resources = append(resources, resource)
		}
	}
	text := strings.Join(rule.Verbs, ",") + " " + strings.Join(resources, ",")
	if len(rule.ResourceNames) > 0 {
		text += " named " + strings.Join(rule.ResourceNames, ",")
	}
	return text
}

// No rule uses a wildcard or reads Secrets, whatever the configuration.
func TestNoPermissionIsOpenEnded(t *testing.T) {
	goldens, err := filepath.Glob("testdata/rbac-*.golden")
	if err != nil || len(goldens) == 0 {
		t.Fatalf("%v, %v", goldens, err)
	}
	for _, golden := range goldens {
		for line := range strings.Lines(readFile(t, golden)) {
			// The one Secret is that of the webhook's own certificates, and only it.
			secret := strings.Contains(line, "secrets") && !strings.HasSuffix(strings.TrimSpace(line), " secrets named kube-node-ready-webhook")
			if strings.Contains(line, "*") || secret || strings.Contains(line, "escalate") {
				t.Errorf("%s: %s", golden, line)
			}
		}
	}
}
