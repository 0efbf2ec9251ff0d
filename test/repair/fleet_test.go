//go:build repair

package repair

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// size is a fleet's number of nodes. One of them may be unhealthy, but not two. Karpenter repairs up to 20% of a pool
// and rounds that up, and the MachineHealthCheck of testdata is configured likewise.
const size = 5

// fleet is the nodes of a pool, each with an owner by which its repairer replaces it: a Machine or a NodeClaim.
type fleet struct {
	*world
	owners schema.GroupVersionResource
	// node is the path of the node's name in an owner.
	node []string
	// limit is the reason of the event by which the repairer says that too many nodes are unhealthy for it to act.
	limit string
}

// current returns the UIDs of the owners by their nodes' names. It fails while an owner is terminating, or has no node
// that is Ready.
func (f *fleet) current() (map[string]types.UID, error) {
	list, err := f.api.Resource(f.owners).List(f.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	current := map[string]types.UID{}
	for _, owner := range list.Items {
		name, _, _ := unstructured.NestedString(owner.Object, f.node...)
		if owner.GetDeletionTimestamp() != nil || name == "" {
			return nil, fmt.Errorf("%s: node %q, terminating since %v", owner.GetName(), name, owner.GetDeletionTimestamp())
		}
		node, err := f.client.CoreV1().Nodes().Get(f.Context(), name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			return nil, fmt.Errorf("node %s is not Ready", name)
		}
		current[name] = owner.GetUID()
	}
	if len(current) != size {
		return nil, fmt.Errorf("%d of %d owners are there", len(current), size)
	}
	return current, nil
}

// await waits until the fleet is complete, and returns its owners by their nodes.
func (f *fleet) await() map[string]types.UID {
	f.Helper()
	var current map[string]types.UID
	f.eventually("the fleet is complete", func() (err error) {
		current, err = f.current()
		return err
	})
	return current
}

// unchanged fails when an owner is another one or is being deleted.
func (f *fleet) unchanged(known map[string]types.UID) func() error {
	return func() error {
		current, err := f.current()
		if err == nil && !maps.Equal(current, known) {
			err = fmt.Errorf("the owners are %v and were %v", current, known)
		}
		return err
	}
}

// replaced waits until the owner of one node alone is another one, and returns what the fleet is then.
func (f *fleet) replaced(known map[string]types.UID, node string) map[string]types.UID {
	f.Helper()
	var now map[string]types.UID
	f.eventually("the owner of "+node+" is replaced", func() (err error) {
		if now, err = f.current(); err == nil && now[node] != "" {
			err = fmt.Errorf("it is not")
		}
		return err
	})
	for other, uid := range known {
		if other != node && now[other] != uid {
			f.Errorf("the owner of %s was replaced too", other)
		}
	}
	return now
}

// serve plays the kubelets of the machines that list names, which are their nodes' names. add starts one; it is stopped
// when its machine is gone.
func (f *fleet) serve(list func(context.Context) ([]string, error), add func(ctx context.Context, name string) error) {
	var served []string
	f.play("machines", func(ctx context.Context) error {
		names, err := list(ctx)
		if err != nil {
			return err
		}
		for _, name := range names {
			if slices.Contains(served, name) {
				continue
			}
			if err := add(ctx, name); err != nil {
				return err
			}
			served = append(served, name)
		}
		served = slices.DeleteFunc(served, func(name string) bool {
			if slices.Contains(names, name) {
				return false
			}
			_ = f.agent.Node(name).Remove(ctx) // the repairer may have deleted the Node
			return true
		})
		return nil
	})
}
