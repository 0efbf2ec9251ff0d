package remediation

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// apiServer is as much of an API server as this package asks: lists of NodeClaims in pages, and deletions.
type apiServer struct {
	client.Client // nil: what is not below is not used

	claims    []karpv1.NodeClaim
	took      time.Duration // what a list takes
	fail      map[int]error // by the number of the list, from 1
	failWrite error

	mu      sync.Mutex
	lists   int
	named   []string // the names in lists of one object
	deleted []string
}

func (s *apiServer) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	time.Sleep(s.took)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	if err := s.fail[s.lists]; err != nil {
		return err
	}
	l, ok := list.(*karpv1.NodeClaimList)
	if !ok {
		return fmt.Errorf("unexpected list of %T", list)
	}
	if o.FieldSelector != nil {
		name, _ := o.FieldSelector.RequiresExactMatch("metadata.name")
		s.named = append(s.named, name)
		for _, c := range s.claims {
			if c.Name == name {
				l.Items = append(l.Items, c)
			}
		}
		return nil
	}
	from, _ := strconv.Atoi(o.Continue)
	to := min(len(s.claims), from+int(o.Limit))
	l.Items = s.claims[from:to]
	if to < len(s.claims) {
		l.Continue = strconv.Itoa(to)
	}
	return nil
}

func (s *apiServer) Delete(_ context.Context, obj client.Object, opts ...client.DeleteOption) error {
	o := client.DeleteOptions{}
	o.ApplyOptions(opts)
	kind := strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1.")
	s.deleted = append(s.deleted, fmt.Sprintf("%s %s %s", kind, obj.GetName(), *o.Preconditions.UID))
	return s.failWrite
}

// node makes a Node; claim, below, a NodeClaim. An empty pool is no label.
func node(name, providerID, pool string, owners ...metav1.OwnerReference) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
	n.Spec.ProviderID = providerID
	if pool != "" {
		n.Labels = map[string]string{"karpenter.sh/nodepool": pool}
	}
	return n
}

func ownedBy(uid string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", UID: types.UID(uid)}
}

// claim has the UID "<name>-uid".
func claim(name, providerID, nodeName, pool string) karpv1.NodeClaim {
	c := karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")}}
	c.Status.ProviderID, c.Status.NodeName = providerID, nodeName
	if pool != "" {
		c.Labels = map[string]string{"karpenter.sh/nodepool": pool}
	}
	return c
}

func mustBe[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
