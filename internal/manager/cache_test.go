package manager

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/allocatable"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/daemonsets"
)

// Of what a node offers the cache keeps what some profile waits for, and nothing where none does.
func TestCacheKeepsAwaitedResources(t *testing.T) {
	one := resource.MustParse("1")
	offered := func() *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"example.com/gpu": one, "example.com/nic": one, corev1.ResourceCPU: one},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Reason: "KubeletReady", Message: "ready"}, {Type: marks.ConditionType, Reason: "ChecksPassed", Message: "passed"}},
			Images:     []corev1.ContainerImage{{SizeBytes: 1}}}}
	}
	cfg := &config.Config{NodeManagement: config.NodeManagement{Prerequisites: config.Prerequisites{Allocatable: allocatable.Settings{"example.com/nic": one}}},
		Profiles: []config.Profile{{Prerequisites: &config.Prerequisites{DaemonSets: daemonsets.Settings{Named: []daemonsets.Entry{
			{Provides: &daemonsets.Provided{Allocatable: allocatable.Settings{"example.com/gpu": one}}}, {Namespace: "a", Name: "b"}}}}}}}
	for _, test := range []struct {
		cfg  *config.Config
		want corev1.ResourceList
	}{{cfg, corev1.ResourceList{"example.com/gpu": one, "example.com/nic": one}}, {&config.Config{}, nil}} {
		slim, err := slimNode(awaited(test.cfg))(offered())
		if err != nil {
			t.Fatal(err)
		}
		if got := slim.(*corev1.Node).Status; !reflect.DeepEqual(got.Allocatable, test.want) || got.Images != nil {
			t.Errorf("kept %v, want %v", got, test.want)
		} else if others, ours := got.Conditions[0], got.Conditions[1]; others.Reason+others.Message != "" || ours.Reason == "" || ours.Message == "" {
			t.Errorf("kept conditions %v", got.Conditions)
		}
	}
}
