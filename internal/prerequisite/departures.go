package prerequisite

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/karpenter/pkg/apis"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// byProviderID is the index of NodeClaims by the machine that they are.
const byProviderID = "provider-id"

// settleEvery is how often the first list of NodeClaims is looked for.
const settleEvery = 20 * time.Millisecond

// Departures knows the nodes whose NodeClaim is being deleted. The Node shows that only once it is registered, when Karpenter
// deletes it first (sigs.k8s.io/karpenter pkg/controllers/nodeclaim/lifecycle).
type Departures struct {
	clients Clients
	claims  *feed

	karpenter chan struct{} // closed with the first node of Karpenter's
	first     sync.Once
	known     chan struct{} // closed once NodeClaims are read, or it is clear that they are not
}

// NewDepartures prepares the watch of NodeClaims; Start runs it.
func NewDepartures(c Clients) *Departures {
	return &Departures{clients: c, karpenter: make(chan struct{}), known: make(chan struct{}), claims: newFeed(newWakes(), cache.Indexers{byProviderID: func(o any) ([]string, error) {
		if u, ok := o.(*unstructured.Unstructured); ok {
			if id := providerID(u); id != "" {
				return []string{id}, nil
			}
		}
		return nil, nil
	}}, slimClaim)}
}

// NeedLeaderElection lets a standby replica keep its watch warm.
func (d *Departures) NeedLeaderElection() bool { return false }

// Start watches until ctx is done. A cluster without Karpenter is asked for its kinds once, and again when a node shows Karpenter's
// marks.
func (d *Departures) Start(ctx context.Context) error {
	kind := schema.GroupVersionKind{Group: apis.Group, Version: "v1", Kind: "NodeClaim"}
	if _, err := d.clients.Mapper.RESTMapping(kind.GroupKind(), kind.Version); err == nil {
		go d.settle(ctx)
	} else {
		close(d.known)
		select {
		case <-d.karpenter:
		case <-ctx.Done():
			return nil
		}
	}
	d.claims.runKind(ctx, d.clients, kind, metav1.NamespaceAll)
	return nil
}

// settle waits for the first answer about NodeClaims: a leader must not start a worker on a node that leaves before it has seen them.
func (d *Departures) settle(ctx context.Context) {
	defer close(d.known)
	_ = wait.PollUntilContextCancel(ctx, settleEvery, true, func(context.Context) (bool, error) {
		return d.claims.objects() != nil || d.claims.why() != notReadYet, nil
	}) // it fails with ctx alone
}

// Known waits until what Of says is known as far as it ever will be.
func (d *Departures) Known(ctx context.Context) error {
	select {
	case <-d.known:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Of says why the node is leaving; empty where no NodeClaim of its provider ID is being deleted, as far as is known. Where NodeClaims
// cannot be read nothing is known, and no node is held for that.
func (d *Departures) Of(n *corev1.Node, k marks.Karpenter) string {
	if k.Managed {
		d.first.Do(func() { close(d.karpenter) })
	}
	claims := d.claims.objects()
	if claims == nil || n.Spec.ProviderID == "" {
		return ""
	}
	found, err := claims.ByIndex(byProviderID, n.Spec.ProviderID)
	if err != nil {
		return ""
	}
	for _, o := range found {
		if u, ok := o.(*unstructured.Unstructured); ok && u.GetDeletionTimestamp() != nil {
			return fmt.Sprintf("its NodeClaim %s is being deleted", u.GetName())
		}
	}
	return ""
}

func providerID(u *unstructured.Unstructured) string {
	id, _, _ := unstructured.NestedString(u.Object, "status", "providerID") // of another form: counts as none
	return id
}

func slimClaim(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	slim := identified(u, map[string]any{"providerID": providerID(u)})
	slim.SetDeletionTimestamp(u.GetDeletionTimestamp())
	return slim, nil
}
