package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/allocatable"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/conditions"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/csinodes"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/daemonsets"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/pods"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/resources"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/resourceslices"
)

// An empty list of checks that is written out is none, here and in a profile; an absent one is the built-ins.
func TestUnchecked(t *testing.T) {
	const ready, gpu = "nodeManagement: {prerequisites: {nodeReady: true}}\n", "profiles: [{name: gpu, nodeSelector: {matchLabels: {gpu: a}}, "
	for _, tc := range []struct {
		file            string
		base, ofProfile bool
		fault           string // part of the only one
	}{
		{"", false, false, ""},
		{"worker: {checks: }", false, false, ""},
		{ready + "worker: {checks: []}", true, true, ""},
		{ready + "worker: {checks: [], dnsTestDomains: [a.b]}", false, false, ""},
		{ready + gpu + "checks: []}]", false, true, ""},
		{ready + "worker: {checks: []}\n" + gpu + "checks: [{name: a, type: tcp}]}]", true, false, ""},
		{ready + "worker: {checks: []}\n" + gpu + "dnsTestDomains: [a.b]}]", true, false, ""},
		{gpu + "checks: [], prerequisites: {nodeReady: true}}]", false, true, ""},

		{"worker: {checks: []}", false, false, "worker.checks: Invalid value: \"[]\": is empty, and so is nodeManagement.prerequisites"},
		{"worker: {checks: []}\nnodeManagement: {prerequisites: {pods: []}}", false, false, "worker.checks: Invalid"},
		{gpu + "checks: []}]", false, false, "profiles[0].checks: Invalid value: \"[]\": is empty, and so is nodeManagement.prerequisites"},
		{ready + gpu + "checks: [], prerequisites: {}}]", false, false, "profiles[0].checks: Invalid value: \"[]\": is empty, and so is profiles[0].prerequisites"},
		{ready + "worker: {checks: []}\n" + gpu + "prerequisites: {}}]", false, false, "profiles[0].prerequisites: Invalid value: \"{}\": is empty, and so is worker.checks"},
	} {
		c, err := Parse([]byte(tc.file), "file")
		if tc.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fault) || strings.Count(err.Error(), "Invalid") != 1 {
				t.Errorf("%q: %v", tc.file, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tc.file, err)
			continue
		}
		if base, profile := c.For(nil).Unchecked(), c.For(map[string]string{"gpu": "a"}).Unchecked(); base != tc.base || profile != tc.ofProfile {
			t.Errorf("%q: unchecked %v, in the profile %v", tc.file, base, profile)
		}
	}
}

// Whatever is added to the prerequisites must count as one.
func TestNoPrerequisites(t *testing.T) {
	all := []Prerequisites{
		{NodeReady: true}, {Conditions: make(conditions.Settings, 1)}, {Pods: make(pods.Settings, 1)}, {DaemonSets: daemonsets.Settings{Mode: daemonsets.Auto}},
		{CSINodes: make(csinodes.Settings, 1)}, {Allocatable: allocatable.Settings{"a": {}}}, {ResourceSlices: make(resourceslices.Settings, 1)},
		{Resources: make(resources.Settings, 1)},
	}
	none := Prerequisites{DaemonSets: daemonsets.Settings{Mode: daemonsets.None}}
	if len(none.All())+len(Prerequisites{}.All()) > 0 {
		t.Error("nothing to wait for counts as something")
	}
	for _, p := range append(all, Prerequisites{DaemonSets: daemonsets.Settings{Named: make([]daemonsets.Entry, 1)}}) {
		if len(p.All()) == 0 {
			t.Errorf("%+v", p)
		}
	}
	if known := reflect.TypeFor[Prerequisites]().NumField(); known != len(all) {
		t.Errorf("%d kinds of prerequisites, of which %d are tried here", known, len(all))
	}
}
