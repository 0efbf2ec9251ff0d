package deletion

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// apiServer is as much of an API server as this package asks: lists in pages, and ConfigMaps with resource versions.
type apiServer struct {
	client.Writer // nil: what is not below is not used

	claims []karpv1.NodeClaim
	pods   []corev1.Pod
	ledger *corev1.ConfigMap

	took      time.Duration // what a list takes
	fail      map[int]error // by the number of the list, from 1
	failGet   error
	failWrite error
	overtake  func(*apiServer) // before the next write

	mu                  sync.Mutex
	lists, gets, writes int
	selectors           []string
	deleted             []string
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
	switch l := list.(type) {
	case *karpv1.NodeClaimList:
		l.Items, l.Continue = cut(s.claims, o)
	case *corev1.PodList:
		s.selectors = append(s.selectors, o.FieldSelector.String())
		l.Items, l.Continue = cut(s.pods, o)
	default:
		return fmt.Errorf("unexpected list of %T", list)
	}
	return nil
}

func cut[T any](all []T, o client.ListOptions) ([]T, string) {
	from, _ := strconv.Atoi(o.Continue)
	to := min(len(all), from+int(o.Limit))
	if to == len(all) {
		return all[from:], ""
	}
	return all[from:to], strconv.Itoa(to)
}

func (s *apiServer) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	s.gets++
	if s.failGet != nil {
		return s.failGet
	}
	if s.ledger == nil || client.ObjectKeyFromObject(s.ledger) != key {
		return apierrors.NewNotFound(configMaps, key.Name)
	}
	s.ledger.DeepCopyInto(obj.(*corev1.ConfigMap))
	return nil
}

var configMaps = schema.GroupResource{Resource: "configmaps"}

func (s *apiServer) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	return s.write(func() error {
		if s.ledger != nil {
			return apierrors.NewAlreadyExists(configMaps, obj.GetName())
		}
		s.put(obj)
		return nil
	})
}

func (s *apiServer) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	return s.write(func() error {
		switch {
		case s.ledger == nil:
			return apierrors.NewNotFound(configMaps, obj.GetName())
		case s.ledger.ResourceVersion != obj.GetResourceVersion():
			return apierrors.NewConflict(configMaps, obj.GetName(), fmt.Errorf("changed meanwhile"))
		}
		s.put(obj)
		return nil
	})
}

func (s *apiServer) write(do func() error) error {
	s.writes++
	if s.overtake != nil {
		s.overtake(s)
		s.overtake = nil
	}
	if s.failWrite != nil {
		return s.failWrite
	}
	return do()
}

func (s *apiServer) put(obj client.Object) {
	s.ledger = obj.(*corev1.ConfigMap).DeepCopy()
	s.ledger.ResourceVersion = strconv.Itoa(s.writes)
	obj.SetResourceVersion(s.ledger.ResourceVersion)
}

// version is the ledger's; empty where there is none.
func (s *apiServer) version() string {
	if s.ledger == nil {
		return ""
	}
	return s.ledger.ResourceVersion
}

// Delete has no objects to delete; it writes down what it was asked.
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
