package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// byProviderID is the index of owners by the machine that they are.
const byProviderID = "provider-id"

// settleEvery is how often the first list of owners is looked for.
const settleEvery = 20 * time.Millisecond

// Owners knows the nodes whose owner is terminating. A Node shows that only once it is registered, when Karpenter
// deletes the Node first (sigs.k8s.io/karpenter pkg/controllers/nodeclaim/lifecycle).
type Owners []*ownersOfKind

// NewOwners prepares a watch for each of owner.Kinds; AddTo runs them.
func NewOwners(c Clients) Owners {
	var all Owners
	for _, k := range owner.Kinds() {
		if k.Name != owner.Node {
			all = append(all, newOwnersOfKind(c, k))
		}
	}
	return all
}

// AddTo has the manager run the watches.
func (o Owners) AddTo(mgr manager.Manager) (err error) {
	for _, k := range o {
		err = errors.Join(err, mgr.Add(k))
	}
	return err
}

// Known waits until Terminating is as reliable as it can be.
func (o Owners) Known(ctx context.Context) error {
	for _, k := range o {
		select {
		case <-k.known:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Terminating returns the owner of the node that is being deleted; empty if none is known. If owners cannot be read,
// none is known, and no node is held for that.
func (o Owners) Terminating(n *corev1.Node, shown marks.Facts) string {
	for _, k := range o {
		if shown.Owner.Kind == k.kind.Name {
			k.first.Do(func() { close(k.shown) })
		}
		if name := k.terminating(n.Spec.ProviderID); name != "" {
			return fmt.Sprintf("its %s %s is being deleted", k.kind.Name, name)
		}
	}
	return ""
}

// ownersOfKind watches the owners of one kind.
type ownersOfKind struct {
	*informer
	kind    owner.Kind
	clients Clients

	shown chan struct{} // closed once a node shows signs of an owner of the kind
	first sync.Once
	known chan struct{} // closed once the owners are read, or it is clear that they are not
}

func newOwnersOfKind(c Clients, k owner.Kind) *ownersOfKind {
	// They enqueue no node.
	i := newInformer(newWaiting(), &kind.Source{Kind: k.Version, Slim: kind.Slim(slimOwner(k))})
	i.indexers[byProviderID] = machine
	return &ownersOfKind{informer: i, kind: k, clients: c, shown: make(chan struct{}), known: make(chan struct{})}
}

// NeedLeaderElection lets a standby replica keep its watch warm.
func (o *ownersOfKind) NeedLeaderElection() bool { return false }

// Start watches until ctx is done. If the API server does not serve the kind, Start tries again once a node shows signs
// of an owner.
func (o *ownersOfKind) Start(ctx context.Context) error {
	version := o.kind.Version
	if _, err := o.clients.Mapper.RESTMapping(version.GroupKind(), version.Version); err == nil {
		go o.settle(ctx)
	} else {
		close(o.known)
		select {
		case <-o.shown:
		case <-ctx.Done():
			return nil
		}
	}
	o.runSource(ctx, o.clients)
	return nil
}

// settle waits for the first answer about owners: a leader must not start a worker on a node that terminates before it
// has read them.
func (o *ownersOfKind) settle(ctx context.Context) {
	defer close(o.known)
	_ = utilwait.PollUntilContextCancel(ctx, settleEvery, true, func(context.Context) (bool, error) {
		_, unknown := o.objects()
		return unknown != notReadYet, nil
	}) // it fails with ctx alone
}

// terminating names an owner of the provider ID that is being deleted.
func (o *ownersOfKind) terminating(providerID string) string {
	objects, unknown := o.objects()
	if unknown != "" || providerID == "" {
		return ""
	}
	found, err := objects.ByIndex(byProviderID, providerID)
	if err != nil {
		return ""
	}
	for _, x := range found {
		if u, ok := x.(*unstructured.Unstructured); ok && u.GetDeletionTimestamp() != nil {
			return u.GetName()
		}
	}
	return ""
}

// machine indexes an owner that slimOwner returned by its provider ID.
func machine(o any) ([]string, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		if id, _, _ := unstructured.NestedString(u.Object, "status", byProviderID); id != "" {
			return []string{id}, nil
		}
	}
	return nil, nil
}

// slimOwner keeps of an owner its identity, whether it is being deleted, and which machine it is.
func slimOwner(k owner.Kind) func(*unstructured.Unstructured) any {
	return func(u *unstructured.Unstructured) any {
		if _, slim, _ := unstructured.NestedString(u.Object, "status", byProviderID); slim {
			return u
		}
		providerID, _ := k.Machine(u)
		slim := kind.Identity(u, map[string]any{byProviderID: providerID})
		slim.SetDeletionTimestamp(u.GetDeletionTimestamp())
		return slim
	}
}
