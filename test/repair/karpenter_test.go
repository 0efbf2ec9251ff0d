//go:build repair

package repair

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// karpenter starts Karpenter with its kwok provider, to whose repair policies our condition is added, and a static
// NodePool.
func karpenter(w *world) *fleet {
	f := &fleet{
		world:  w,
		owners: schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"},
		node:   []string{"status", "nodeName"},
		limit:  "NodeRepairBlocked",
	}
	module := w.module("karpenter", "sigs.k8s.io/karpenter")
	w.apply(filepath.Join(module, "pkg", "apis", "crds"), filepath.Join(module, "kwok", "apis", "crds"))
	w.apply(filepath.Join("testdata", "karpenter.yaml"))

	// kwok makes the Nodes; the agent plays their kubelets.
	f.serve(func(ctx context.Context) (names []string, err error) {
		list, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, n := range list.Items {
			if strings.HasPrefix(n.Spec.ProviderID, "kwok://") {
				names = append(names, n.Name)
			}
		}
		return names, nil
	}, func(ctx context.Context, name string) error {
		_, err := w.agent.AdoptNode(ctx, name, nodeagent.DNSWorks)
		return err
	})
	ports := w.ports(2)
	w.program("karpenter-repair", []string{
		"REPAIR_CONDITION=" + string(condition), "REPAIR_TOLERATION=" + toleration.String(),
		"FEATURE_GATES=NodeRepair=true,StaticCapacity=true", "DISABLE_LEADER_ELECTION=true",
		fmt.Sprintf("METRICS_PORT=%d", ports[0]), fmt.Sprintf("HEALTH_PROBE_PORT=%d", ports[1]),
	})
	return f
}
