package integration

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A device plugin that registers late, and then finds its devices one after the other.
func TestAllocatablePrerequisites(t *testing.T) {
	s := begin(t, prerequisites(map[string]any{"allocatable": map[string]any{"example.com/gpu": 2}}))
	s.controller()
	n := s.node("a")
	s.waits(n.Name, "2 example.com/gpu allocatable (the node offers none)")
	offer := func(gpus int) {
		patch := fmt.Appendf(nil, `{"status":{"allocatable":{"example.com/gpu":"%d"}}}`, gpus)
		s.must(k8s.CoreV1().Nodes().Patch(s.ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"))
	}
	offer(1)
	s.waits(n.Name, "(the node offers 1)")
	offer(2)
	s.becomes(n.Name, "verified", isVerified)
}
