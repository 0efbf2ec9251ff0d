package chart

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/rights"
)

// Under each configuration every account may do what internal/rights lists and controller.extraRules and
// worker.extraRules add, and nothing else.
func TestPermissionsAreTheLeast(t *testing.T) {
	configurations := map[string]string{
		"default": "",
		"daemonset": `
deploymentMode: daemonset
controller: {config: {nodeManagement: {prerequisites: {csiNodes: [{driver: a.io}], pods: [{namespace: a, selector: {matchLabels: {a: b}}, currentRevision: true}]}}}}`,
		"evicting":    "controller: {config: {nodeManagement: {taints: [{key: a.io/one, effect: NoExecute}]}}}",
		"backfilling": "controller: {config: {admission: {backfill: true}}}",
		"deleting":    "controller: {config: {nodeManagement: {deleteFailedNodes: true}}}",
		"conditions":  "controller: {config: {nodeManagement: {deleteFailedNodes: true, remediation: {action: condition}}}}",
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
		// So is one that a label registers, unless the selector has a namespace.
		"daemonsets-selector": `
controller: {config: {nodeManagement: {prerequisites: {daemonSets: [{selector: {matchLabels: {node-ready/required: "true"}}}]}}}}`,
		"daemonsets-selector-in-a-namespace": `
controller: {config: {nodeManagement: {prerequisites: {daemonSets: [{namespace: a, selector: {matchLabels: {node-ready/required: "true"}}}]}}}}`,
		"daemonsets-provide": `
controller: {config: {nodeManagement: {prerequisites: {daemonSets: {mode: none, named: [{namespace: a, name: d, provides: {csiNodes: [{driver: disk.example.com}], allocatable: {a/b: 1}}}]}}}}}`,
		"policy":          "controller: {config: {admission: {mode: policy}}}",
		"webhook":         "controller: {config: {admission: {mode: webhook}}}",
		"cert-manager":    "controller: {config: {admission: {mode: webhook}}}\nwebhook: {certManager: {enabled: true}}",
		"own-certificate": "controller: {config: {admission: {mode: webhook, webhook: {certificateDir: /certs}}}}\nwebhook: {caBundle: UEVN}",
		"dry-run": `
controller: {dryRun: true, config: {admission: {mode: webhook, backfill: true}, nodeManagement: {deleteFailedNodes: true}}}`,
		"secure-metrics":      "controller: {config: {metrics: {secure: true}}}",
		"no-metrics":          "controller: {config: {metrics: {secure: true, enabled: false}}}",
		"no-rules":            "controller: {config: {rules: {enabled: false}}}",
		"take-over":           "controller: {config: {rules: {takeOver: true}}}",
		"no-election":         "controller: {replicas: 1, config: {leaderElection: {enabled: false}}}",
		"workers-elsewhere":   "controller: {config: {worker: {namespace: workers, checks: [{name: p, type: peers, peers: {selector: a=b, port: 1}}]}}}",
		"one-namespace":       "controller: {config: {worker: {namespace: default}, leaderElection: {namespace: default}}}",
		"no-checks":           "controller: {config: {worker: {checks: []}, nodeManagement: {prerequisites: {nodeReady: true}}}}",
		"checks-of-a-profile": `controller: {config: {profiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, presets: [cilium, ebs-csi], taints: [{key: a, effect: NoExecute}]}]}}`,
		"presets-everywhere": `
controller: {config: {nodeManagement: {presets: [ebs-csi]}, profiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, presets: [cilium, ebs-csi]}]}}`,
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
        - {name: dns-peers, type: peers, peers: {namespace: dns, service: dns, port: 53}}
    profiles:
      - name: gpu
        nodeSelector: {matchLabels: {gpu: "true"}}
        checks: [{name: shop, type: serviceDiscovery, serviceDiscovery: {namespace: shop, service: cart}}]`,
	}
	for _, d := range config.Presets() {
		configurations["preset-"+string(d.Name)] = fmt.Sprintf("controller: {config: {nodeManagement: {presets: [%s]}}}", d.Name)
	}
	for _, file := range append(exampleValues(t), filepath.Join(chartDir, "values.yaml")) {
		configurations[filepath.Base(file)] = readFile(t, file)
	}
	for name, values := range configurations {
		t.Run(name, func(t *testing.T) { comparePermissions(t, values) })
	}
	const endpoints = "controller: {config: {worker: {checks: [{name: dns, type: dns, dns: {resolver: endpoints}}]}}}"
	t.Run("openshift", func(t *testing.T) { comparePermissions(t, endpoints, "--api-versions", "config.openshift.io/v1") })
}

// comparePermissions compares what the chart grants with internal/rights.
func comparePermissions(t *testing.T, values string, flags ...string) {
	t.Helper()
	found := render(t, values, flags...)
	var v struct {
		DeploymentMode string
		Controller     struct {
			DryRun     bool
			ExtraRules []rbacv1.PolicyRule
		}
		Worker struct{ ExtraRules []rbacv1.PolicyRule }
	}
	if err := yaml.Unmarshal([]byte(values), &v); err != nil {
		t.Fatal(err)
	}
	openShift, want := len(flags) > 0, map[string][]string{}
	if v.DeploymentMode == "daemonset" {
		cfg, err := config.ParseDaemonSet([]byte(daemonSetFile(t, found)), "config.yaml")
		if err != nil {
			t.Fatal(err)
		}
		want["kube-node-ready"] = listed(slices.Concat(rights.DaemonSet(cfg), rights.Worker(cfg, namespace, openShift)), v.Worker.ExtraRules)
	} else {
		cfg, err := config.Parse([]byte(file(t, found)), "config.yaml")
		if err != nil {
			t.Fatal(err)
		}
		want["kube-node-ready-controller"] = listed(rights.Controller(cfg, namespace, v.Controller.DryRun), v.Controller.ExtraRules)
		want[cfg.Worker.ServiceAccountName] = listed(rights.Worker(cfg, namespace, openShift), v.Worker.ExtraRules)
	}
	got := permissions(t, found)
	accounts := maps.Clone(got)
	maps.Copy(accounts, want)
	for account := range accounts {
		if more, less := without(got[account], want[account]), without(want[account], got[account]); len(more)+len(less) > 0 {
			t.Errorf("of %s the chart grants and the table lacks\n%s\nand the other way round\n%s",
				account, strings.Join(more, "\n"), strings.Join(less, "\n"))
		}
	}
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

// permissions lists by service account what the bound roles allow. Besides them there are only roles for people.
func permissions(t *testing.T, found objects) map[string][]string {
	t.Helper()
	all, bound := map[string][]string{}, map[string]bool{}
	add := func(subject rbacv1.Subject, where, role string, rules []rbacv1.PolicyRule) {
		bound[role] = true
		all[subject.Name] = append(all[subject.Name], lines(where, rules)...)
	}
	for key, object := range found {
		switch object.GetKind() {
		case "ClusterRoleBinding":
			binding := get[rbacv1.ClusterRoleBinding](t, found, key)
			role := "ClusterRole " + binding.RoleRef.Name
			add(binding.Subjects[0], "", role, get[rbacv1.ClusterRole](t, found, role).Rules)
		case "RoleBinding":
			binding := get[rbacv1.RoleBinding](t, found, key)
			role := "Role " + binding.Namespace + "/" + binding.RoleRef.Name
			add(binding.Subjects[0], binding.Namespace, role, get[rbacv1.Role](t, found, role).Rules)
		}
	}
	people := []string{"-viewer", "-operator", "-rules-viewer", "-rules-editor", "-metrics-reader"}
	for key, object := range found {
		isRole := object.GetKind() == "Role" || object.GetKind() == "ClusterRole"
		if isRole && !bound[key] && !slices.Contains(people, strings.TrimPrefix(object.GetName(), "kube-node-ready")) {
			t.Errorf("%s is not bound", key)
		}
	}
	for account := range all {
		all[account] = sorted(all[account])
	}
	return all
}

// listed is permissions of a table and of what values add to it.
func listed(table []rights.Right, extra []rbacv1.PolicyRule) []string {
	all := lines("", extra)
	for _, r := range table {
		rule := rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: r.Verbs}
		if r.Name != "" {
			rule.ResourceNames = []string{r.Name}
		}
		all = append(all, lines(r.Namespace, []rbacv1.PolicyRule{rule})...)
	}
	return sorted(all)
}

// lines has one for each verb, resource and name of the rules.
func lines(where string, rules []rbacv1.PolicyRule) (all []string) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				names := rule.ResourceNames
				if len(names) == 0 {
					names = []string{""}
				}
				for _, name := range names {
					for _, verb := range rule.Verbs {
						all = append(all, fmt.Sprintf("%s: %s %s.%s %s", where, verb, resource, group, name))
					}
				}
			}
		}
	}
	return all
}

func sorted(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}
