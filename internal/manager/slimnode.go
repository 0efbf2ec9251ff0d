package manager

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// slimNode returns what reduces a Node to what decisions read: a cluster has tens of thousands of them. A status that a
// kubelet renews then changes nothing but the resourceVersion. It makes a Node of its own, because an informer may
// transform one twice.
func slimNode(cfg *config.Config) toolscache.TransformFunc {
	s := slimmer{allocatable: awaited(cfg), heartbeats: *cfg.Rules.Enabled && cfg.Rules.StaleAfter.Duration > 0}
	return func(o any) (any, error) {
		if n, ok := o.(*corev1.Node); ok {
			return s.slim(n), nil
		}
		return o, nil
	}
}

// slimmer reduces Nodes.
type slimmer struct {
	// allocatable are the resources of status.allocatable that it keeps.
	allocatable map[corev1.ResourceName]bool
	// heartbeats: rules ask how old lastHeartbeatTime of a condition is, and whether it changes alone.
	heartbeats bool

	mu sync.Mutex
	// texts are strings that many nodes have in common. Each node that is read brings copies of its own, which would take
	// half of its memory.
	texts map[string]string
}

func (s *slimmer) slim(n *corev1.Node) *corev1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion,
			CreationTimestamp: n.CreationTimestamp, DeletionTimestamp: n.DeletionTimestamp,
			Labels: s.labels(n), Annotations: s.annotations(n.Annotations), OwnerReferences: n.OwnerReferences,
			Finalizers: n.Finalizers, ManagedFields: marks.CompletionTimes(n)},
		Spec: corev1.NodeSpec{ProviderID: n.Spec.ProviderID, Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints},
		Status: corev1.NodeStatus{Conditions: s.conditions(n.Status.Conditions), Allocatable: s.awaited(n.Status.Allocatable),
			NodeInfo: corev1.NodeSystemInfo{BootID: n.Status.NodeInfo.BootID}},
	}
}

func (s *slimmer) labels(n *corev1.Node) map[string]string {
	if n.Labels == nil {
		return nil
	}
	out := make(map[string]string, len(n.Labels))
	for key, value := range n.Labels {
		if value == n.Name { // as of kubernetes.io/hostname: no other node has it
			value = n.Name
		} else {
			value = s.shared(value)
		}
		out[s.shared(key)] = value
	}
	return out
}

func (s *slimmer) annotations(all map[string]string) map[string]string {
	if all == nil {
		return nil
	}
	out := make(map[string]string, len(all))
	for key, value := range all {
		out[s.shared(key)] = value
	}
	return out
}

// conditions are a node's conditions. Of others' only the type, the status and the transition count, and the reason if
// it asks for remediation; with heartbeats, the heartbeat and any reason too.
func (s *slimmer) conditions(all []corev1.NodeCondition) []corev1.NodeCondition {
	if all == nil {
		return nil
	}
	out := make([]corev1.NodeCondition, len(all))
	for i, c := range all {
		kept := &out[i]
		kept.Type = corev1.NodeConditionType(s.shared(string(c.Type)))
		kept.Status = corev1.ConditionStatus(s.shared(string(c.Status)))
		kept.LastTransitionTime = c.LastTransitionTime
		if s.heartbeats {
			kept.LastHeartbeatTime, kept.Reason = c.LastHeartbeatTime, s.shared(c.Reason)
		}
		switch {
		case c.Type == marks.ConditionType:
			kept.Reason, kept.Message = s.shared(c.Reason), c.Message
		case c.Reason == marks.ReasonVerificationFailed:
			kept.Reason = marks.ReasonVerificationFailed
		}
	}
	return out
}

func (s *slimmer) awaited(all corev1.ResourceList) (out corev1.ResourceList) {
	for name := range s.allocatable {
		if quantity, ok := all[name]; ok {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[name] = quantity
		}
	}
	return out
}

// sharedTexts is how many strings are kept at most for the nodes that follow: several times those that the nodes of a
// cluster have in common.
const sharedTexts = 4096

// shared returns the text in the memory of an equal one of another node. It begins anew when there are too many. s.mu
// must be held.
func (s *slimmer) shared(text string) string {
	known, ok := s.texts[text]
	if ok {
		return known
	}
	if s.texts == nil || len(s.texts) >= sharedTexts {
		s.texts = map[string]string{}
	}
	s.texts[text] = text
	return text
}
