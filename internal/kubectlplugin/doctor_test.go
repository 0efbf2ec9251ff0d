package kubectlplugin

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// grants reports whether a line of a golden file of the chart's permissions grants a right with one verb.
func grants(line string, r right, verb string) bool {
	subject, rest, _ := strings.Cut(line, " in ")
	where, rest, _ := strings.Cut(rest, ": ")
	verbs, rest, _ := strings.Cut(rest, " ")
	resources, names, named := strings.Cut(rest, " named ")
	resource := r.resource
	if r.subresource != "" {
		resource += "/" + r.subresource
	}
	if r.group != "" {
		resource += "." + r.group
	}
	return subject == "kube-node-ready-controller" && (where == "the cluster" || where == r.namespace) && slices.Contains(strings.Split(verbs, ","), verb) &&
		slices.Contains(strings.Split(resources, ","), resource) && (!named || slices.Contains(strings.Split(names, ","), r.name))
}

// What doctor asks for is what the chart grants: each right under the configurations of the chart's own tests.
func TestRightsAreTheChart(t *testing.T) {
	for golden, settings := range map[string]string{
		"default":          ``,
		"deleting":         `{nodeManagement: {deleteFailedNodes: true}}`,
		"deleting-dry-run": `{nodeManagement: {deleteFailedNodes: true, remediation: {dryRun: true}}}`,
		"csi-nodes":        `{nodeManagement: {prerequisites: {csiNodes: [{driver: ebs.csi.aws.com}]}}}`,
		"resource-slices":  `{nodeManagement: {prerequisites: {resourceSlices: [{driver: gpu.nvidia.com}]}}}`,
		"daemonsets-auto":  `{nodeManagement: {prerequisites: {daemonSets: auto}}}`,
		"daemonsets-named": `{nodeManagement: {prerequisites: {daemonSets: [{namespace: kube-system, name: cilium}]}}}`,
		"prerequisites": `{leaderElection: {namespace: leases}, nodeManagement: {prerequisites: {pods: [{namespace: kube-system, selector: {matchLabels: {a: b}}}]}},
			profiles: [{name: gpu, nodeSelector: {matchLabels: {gpu: "true"}}, prerequisites: {pods: [{namespace: gpu-operator, selector: {matchLabels: {a: b}}}]}}]}`,
	} {
		content, err := os.ReadFile("../../test/chart/testdata/rbac-" + golden + ".golden")
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(content), "\n")
		for _, r := range rights(configuration(t, settings), "kube-node-ready") {
			for _, verb := range r.verbs {
				if !slices.ContainsFunc(lines, func(l string) bool { return grants(l, r, verb) }) {
					t.Errorf("%s: the chart does not grant %s %s", golden, verb, r)
				}
			}
		}
	}
}
