package manager

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/allocatable"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/daemonsets"
)

// Of the resources that a node offers, the cache keeps only those that a profile waits for or a worker pod requests. It
// keeps heartbeats only if rules ask for their age.
func TestCacheKeepsWhatIsConfigured(t *testing.T) {
	one := resource.MustParse("1")
	cfg := &config.Config{NodeManagement: config.NodeManagement{Prerequisites: config.Prerequisites{Allocatable: allocatable.Settings{"example.com/nic": one}}},
		Profiles: []config.Profile{{Prerequisites: &config.Prerequisites{DaemonSets: daemonsets.Settings{Named: []daemonsets.Entry{
			{Provides: &daemonsets.Provided{Allocatable: allocatable.Settings{"example.com/gpu": one}}}, {Namespace: "a", Name: "b"}}}}}}}
	cfg.Rules.Enabled = ptr.To(true)
	cfg.Rules.StaleAfter.Duration = time.Minute
	if k := kept(cfg); !maps.Equal(k.Allocatable, map[corev1.ResourceName]bool{"example.com/gpu": true, "example.com/nic": true}) || !k.Heartbeats {
		t.Errorf("kept %+v", k)
	}
	asks := &config.Config{Profiles: []config.Profile{
		{Resources: &corev1.ResourceRequirements{Limits: corev1.ResourceList{"example.com/gpu": one, corev1.ResourceCPU: one}}},
		{InitContainers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"example.com/nic": one}}}}}}}
	if names := awaited(asks); !maps.Equal(names, map[corev1.ResourceName]bool{"example.com/gpu": true, "example.com/nic": true}) {
		t.Errorf("kept %v", names)
	}
	cfg = &config.Config{}
	cfg.SetDefaults()
	if k := kept(cfg); len(k.Allocatable) > 0 || k.Heartbeats {
		t.Errorf("kept %+v", k)
	}
}
