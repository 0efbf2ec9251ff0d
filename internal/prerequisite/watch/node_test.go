package watch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/allocatable"
)

func TestAllocatable(t *testing.T) {
	p := config.Prerequisites{Allocatable: allocatable.Settings{"example.com/gpu": resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")}}
	w := New(&config.Config{NodeManagement: config.NodeManagement{Prerequisites: p}}, Clients{})
	if len(w.informers) > 0 {
		t.Errorf("watches %v", w.informers)
	}
	for gpus, want := range map[string]string{
		"":  "2 example.com/gpu allocatable (the node offers none); 1Gi memory allocatable (the node offers none)",
		"0": "2 example.com/gpu allocatable (the node offers 0)",
		"1": "2 example.com/gpu allocatable (the node offers 1)",
		"2": "", "3": "",
	} {
		n := node("node-a")
		if gpus != "" {
			n.Status.Allocatable = corev1.ResourceList{"example.com/gpu": resource.MustParse(gpus), corev1.ResourceMemory: resource.MustParse("2048Mi")}
		}
		got := ""
		for _, wait := range w.Unmet(n, p) {
			if got != "" {
				got += "; "
			}
			got += wait.Message
		}
		if got != want {
			t.Errorf("%q GPUs: %q, want %q", gpus, got, want)
		}
	}
}
