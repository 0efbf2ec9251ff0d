// Package nodeready is prerequisites.nodeReady.
package nodeready

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/conditions"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
)

// Settings waits for the node's Ready condition. Default false: a worker tolerates not-ready.
type Settings bool

// Prerequisites is the node's condition Ready.
func (s Settings) Prerequisites() []kind.Prerequisite {
	if !s {
		return nil
	}
	all := conditions.Settings{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}.Prerequisites()
	all[0].Name = string(corev1.NodeReady)
	return all
}
