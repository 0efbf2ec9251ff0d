package remediation

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// apiServer implements the part of an API server that this package uses: lists in pages, and ConfigMaps with resource
// versions.
type apiServer struct {
	client.Writer // nil: what is not below is not used

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

// Delete has no objects to delete. It records the request.
func mustBe[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
