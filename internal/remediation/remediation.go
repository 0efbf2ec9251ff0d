// Package remediation finds the object that owns a node and acts on it. A kind of owner is a Backend here and an entry
// in owner.Kinds; who decides whether to act (internal/decide) knows none of the kinds.
package remediation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// Backend finds and acts on the owners of one kind.
type Backend interface {
	// Kind is the name of the owners' kind, as in owner.Kinds.
	Kind() string
	// Find looks up the owner of a node. An Owner without a name and a Problem means that no object of the kind owns it.
	// There is no error: what goes wrong is the Owner's Problem, which holds the action.
	Find(ctx context.Context, n *corev1.Node, read Read) owner.Owner
	// Act acts on the target, on condition that it still has the UID that was decided on. It may be called again for a
	// target that it acted on before. The API server's error is wrapped: apierrors.IsNotFound means that the target is
	// gone, apierrors.IsConflict that another object has its name now.
	Act(ctx context.Context, t owner.Target) error
}

// Read is what a lookup reads.
type Read int

const (
	// Recent accepts a list of up to ten seconds ago, which serves many nodes.
	Recent Read = iota
	// ByName reads the one owner that the node refers to, for the few nodes with an action that was let through. It is
	// Latest if that one does not fit, and Recent if the node refers to none or the read fails.
	ByName
	// Latest lists all owners, which an action is decided on: another one may claim the node.
	Latest
)

// Backends are all that may own a node.
type Backends []Backend

// New returns a back-end for each of owner.Kinds. The reader must not be a cache.
func New(reader client.Reader, writer client.Writer) Backends {
	return Backends{&NodeClaims{Reader: reader, Writer: writer}, Nodes{Writer: writer}}
}

// Find looks up the one owner of a node: the Node itself where no other object owns it. Owners of two kinds are a
// Problem.
func (b Backends) Find(ctx context.Context, n *corev1.Node, read Read) owner.Owner {
	found := owner.OfNode(n.Name, string(n.UID))
	for _, backend := range b {
		o := backend.Find(ctx, n, read)
		switch {
		case o.Problem != "":
			return o
		case o.Name == "" || o.Kind == owner.Node:
		case found.Kind != owner.Node:
			return owner.Owner{Problem: fmt.Sprintf("%s %s and %s %s both own the node", found.Kind, found.Name, o.Kind, o.Name)}
		default:
			found = o
		}
	}
	return found
}

// Act acts on the target by the back-end of its kind; see Backend.Act.
func (b Backends) Act(ctx context.Context, t owner.Target) error {
	if t.Name == "" || t.UID == "" {
		return fmt.Errorf("delete %s %q: the decision lacks the name or the UID", t.Kind, t.Name)
	}
	for _, backend := range b {
		if backend.Kind() == t.Kind {
			return backend.Act(ctx, t)
		}
	}
	return fmt.Errorf("delete %s %s: not a kind that may be deleted", t.Kind, t.Name)
}

// Nodes is the back-end of nodes that no other object owns.
type Nodes struct{ Writer client.Writer }

// Kind implements Backend.
func (Nodes) Kind() string { return owner.Node }

// Find implements Backend.
func (Nodes) Find(_ context.Context, n *corev1.Node, _ Read) owner.Owner {
	return owner.OfNode(n.Name, string(n.UID))
}

// Act implements Backend: it deletes the Node.
func (b Nodes) Act(ctx context.Context, t owner.Target) error {
	return deleteByUID(ctx, b.Writer, &corev1.Node{}, t)
}

func deleteByUID(ctx context.Context, w client.Writer, obj client.Object, t owner.Target) error {
	obj.SetName(t.Name)
	if err := w.Delete(ctx, obj, client.Preconditions{UID: ptr.To(types.UID(t.UID))}); err != nil {
		return fmt.Errorf("delete %s %s (UID %s): %w", t.Kind, t.Name, t.UID, err)
	}
	return nil
}
