package config

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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

		{"worker: {checks: []}", false, false, "worker.checks: Invalid value: \"[]\": holds no check, and nodeManagement.prerequisites is empty too"},
		{"worker: {checks: []}\nnodeManagement: {prerequisites: {pods: []}}", false, false, "worker.checks: Invalid"},
		{gpu + "checks: []}]", false, false, "profiles[0].checks: Invalid value: \"[]\": holds no check, and nodeManagement.prerequisites is empty too"},
		{ready + gpu + "checks: [], prerequisites: {}}]", false, false, "profiles[0].checks: Invalid value: \"[]\": holds no check, and profiles[0].prerequisites is empty too"},
		{ready + "worker: {checks: []}\n" + gpu + "prerequisites: {}}]", false, false, "profiles[0].prerequisites: Invalid value: \"{}\": is empty, and worker.checks"},
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
		{NodeReady: true}, {Conditions: make([]ConditionPrerequisite, 1)}, {Pods: make([]PodPrerequisite, 1)}, {DaemonSets: DaemonSets{Mode: DaemonSetsAuto}},
		{CSINodes: make([]CSINodePrerequisite, 1)}, {Allocatable: corev1.ResourceList{"a": {}}}, {ResourceSlices: make([]ResourceSlicePrerequisite, 1)},
		{Resources: make([]ResourcePrerequisite, 1)},
	}
	none := Prerequisites{DaemonSets: DaemonSets{Mode: DaemonSetsNone}}
	if !none.none() || !(&Prerequisites{}).none() {
		t.Error("nothing to wait for counts as something")
	}
	for _, p := range append(all, Prerequisites{DaemonSets: DaemonSets{Named: make([]DaemonSetPrerequisite, 1)}}) {
		if p.none() {
			t.Errorf("%+v", p)
		}
	}
	if known := reflect.TypeFor[Prerequisites]().NumField(); known != len(all) {
		t.Errorf("%d kinds of prerequisites, of which %d are tried here", known, len(all))
	}
}
