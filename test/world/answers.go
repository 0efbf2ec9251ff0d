package world

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// answers serves reads of a world's objects from what was read or written last, as an up-to-date informer does. That is
// possible because every write goes through here, and nothing else runs that could write. Most requests were such
// reads.
type answers struct {
	mu   sync.Mutex
	sets map[string]*set // by kind and world
}

// set is what is known of a world's objects of a kind.
type set struct {
	open             bool // somebody else writes there
	changes, writing int  // writes that have begun or ended, and those that have not ended
	objects          map[client.ObjectKey]client.Object
	missing          map[client.ObjectKey]error
	whole            map[string]bool              // namespaces all of whose objects are known
	asked            map[string]client.ObjectList // other lists
	version          string                       // no older than any of the objects
}

// memory is that of API.
var memory = &answers{sets: map[string]*set{}}

var worldName = regexp.MustCompile(`world-\d+`)

// of is the set that an object of this type, name and namespace belongs to; empty for what is not remembered.
func of(o any, key client.ObjectKey) string {
	switch o.(type) {
	case *corev1.Pod, *corev1.PodList:
		return scope("pods", key.Namespace)
	case *corev1.ConfigMap:
		return scope("configmaps", key.Namespace)
	case *corev1.Node, *corev1.NodeList:
		return scope("nodes", key.Name)
	case *karpv1.NodeClaim, *karpv1.NodeClaimList:
		return scope("nodeclaims", key.Name)
	}
	return ""
}

func scope(kind, name string) string {
	world := worldName.FindString(name)
	if world == "" {
		return ""
	}
	return kind + "/" + world
}

// forgoes keeps no answers about a world: a controller with a client of its own writes there.
func (m *answers) forgoes(world string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, kind := range []string{"pods", "configmaps", "nodes", "nodeclaims"} {
		s := m.set(scope(kind, world))
		s.open = true
		s.forget()
	}
}

func (m *answers) set(name string) *set {
	s := m.sets[name]
	if s == nil {
		s = &set{}
		s.forget()
		m.sets[name] = s
	}
	return s
}

func (s *set) forget() {
	s.objects, s.missing = map[client.ObjectKey]client.Object{}, map[client.ObjectKey]error{}
	s.whole, s.asked = map[string]bool{}, map[string]client.ObjectList{}
}

func (s *set) keep(o client.Object) {
	key := client.ObjectKeyFromObject(o)
	delete(s.missing, key)
	s.objects[key] = o.DeepCopyObject().(client.Object)
	s.sees(o.GetResourceVersion())
}

func (s *set) sees(version string) {
	if order, err := resourceversion.CompareResourceVersion(version, s.version); s.version == "" || err == nil && order > 0 {
		s.version = version
	}
}

// ask asks the API server, and keeps what it says unless a write has overtaken the answer.
func (m *answers) ask(s *set, ask func() error, keep func(error)) error {
	m.mu.Lock()
	changes := s.changes
	m.mu.Unlock()
	err := ask()
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.changes == changes && s.writing == 0 && !s.open {
		keep(err)
	}
	return err
}

// knows answers by what is kept, unless a write is under way.
func (m *answers) knows(name string, answer func(*set) bool) (*set, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.set(name)
	return s, s.writing == 0 && answer(s)
}

func (m *answers) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	name := of(o, key)
	if name == "" {
		return c.Get(ctx, key, o, opts...)
	}
	if err := ctx.Err(); err != nil {
		return err // as a request would
	}
	var missing error
	s, known := m.knows(name, func(s *set) bool {
		missing = s.missing[key]
		have := s.objects[key]
		if have != nil {
			copyInto(have, o)
		}
		return have != nil || missing != nil
	})
	if known {
		return missing
	}
	return m.ask(s, func() error { return c.Get(ctx, key, o, opts...) }, func(err error) {
		switch {
		case err == nil:
			s.keep(o)
		case apierrors.IsNotFound(err):
			s.missing[key] = err
		}
	})
}

func copyInto(have runtime.Object, into client.Object) {
	switch have := have.(type) {
	case *corev1.Pod:
		have.DeepCopyInto(into.(*corev1.Pod))
	case *corev1.ConfigMap:
		have.DeepCopyInto(into.(*corev1.ConfigMap))
	case *corev1.Node:
		have.DeepCopyInto(into.(*corev1.Node))
	case *karpv1.NodeClaim:
		have.DeepCopyInto(into.(*karpv1.NodeClaim))
	}
}

func (m *answers) list(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	if o.FieldSelector != nil {
		return m.listOn(ctx, c, list, o)
	}
	// All objects of the set: those of a namespace, or those with the label of a world.
	whole := client.ListOptions{Namespace: o.Namespace}
	world := o.Namespace
	switch list.(type) {
	case *corev1.NodeList, *karpv1.NodeClaimList:
		if o.LabelSelector == nil {
			return c.List(ctx, list, opts...)
		}
		world, _ = o.LabelSelector.RequiresExactMatch(WorldLabel)
		whole.LabelSelector = labels.SelectorFromSet(labels.Set{WorldLabel: world})
	}
	name := of(list, client.ObjectKey{Namespace: world, Name: world})
	if name == "" {
		return c.List(ctx, list, opts...)
	}
	answer := func(s *set) bool {
		if !s.whole[o.Namespace] {
			return false
		}
		var items []runtime.Object
		for _, key := range slices.SortedFunc(maps.Keys(s.objects), func(a, b client.ObjectKey) int { return strings.Compare(a.Name, b.Name) }) {
			have := s.objects[key]
			if key.Namespace == o.Namespace && (o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(have.GetLabels()))) {
				items = append(items, have.DeepCopyObject())
			}
		}
		list.SetResourceVersion(s.version)
		return meta.SetList(list, items) == nil
	}
	s, known := m.knows(name, answer)
	if known {
		return nil
	}
	err := m.ask(s, func() error { return c.List(ctx, list, &whole) }, func(err error) {
		if err != nil {
			return
		}
		_ = meta.EachListItem(list, func(item runtime.Object) error { s.keep(item.(client.Object)); return nil })
		s.sees(list.GetResourceVersion())
		s.whole[o.Namespace] = true
	})
	if err != nil || o.LabelSelector == nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	return meta.SetList(list, slices.DeleteFunc(items, func(item runtime.Object) bool {
		return !o.LabelSelector.Matches(labels.Set(item.(client.Object).GetLabels()))
	}))
}

// listOn lists the pods on a node, in whatever namespace.
func (m *answers) listOn(ctx context.Context, c client.WithWatch, list client.ObjectList, o client.ListOptions) error {
	node, one := o.FieldSelector.RequiresExactMatch("spec.nodeName")
	pods, ok := list.(*corev1.PodList)
	name := scope("pods", node)
	if !one || !ok || name == "" || o.Namespace != "" || o.LabelSelector != nil || o.Continue != "" {
		return c.List(ctx, list, &o)
	}
	s, known := m.knows(name, func(s *set) bool {
		have := s.asked[node]
		if have != nil {
			have.(*corev1.PodList).DeepCopyInto(pods)
		}
		return have != nil
	})
	if known {
		return nil
	}
	return m.ask(s, func() error { return c.List(ctx, list, &client.ListOptions{FieldSelector: o.FieldSelector}) }, func(err error) {
		if err == nil {
			s.asked[node] = pods.DeepCopy()
		}
	})
}

// write carries a write out. What it returns is how the object is from now on, unless it was a deletion or another write
// was under way.
func (m *answers) write(o client.Object, returns bool, do func() error) error {
	name := of(o, client.ObjectKeyFromObject(o))
	if name == "" {
		return do()
	}
	m.mu.Lock()
	s := m.set(name)
	s.changes++
	s.writing++
	began := s.changes
	m.mu.Unlock()
	err := do()
	m.mu.Lock()
	defer m.mu.Unlock()
	alone := s.writing == 1 && s.changes == began
	s.changes++
	s.writing--
	s.asked = map[string]client.ObjectList{}
	switch key := client.ObjectKeyFromObject(o); {
	case err != nil || !alone || s.open:
		s.forget()
	case returns && o.GetDeletionTimestamp() == nil: // else it may be gone with its last finalizer
		s.keep(o)
	default:
		delete(s.objects, key)
		delete(s.missing, key)
		s.whole = map[string]bool{}
	}
	return err
}

// remembering is the client that gives kept answers.
func remembering(c client.WithWatch) client.WithWatch {
	m := memory
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: m.get, List: m.list,
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			dry := len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0
			return m.write(o, !dry, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			dry := len((&client.UpdateOptions{}).ApplyOptions(opts).DryRun) > 0
			return m.write(o, !dry, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			dry := len((&client.PatchOptions{}).ApplyOptions(opts).DryRun) > 0
			return withWhole(o, func(o client.Object) error {
				return m.write(o, !dry, func() error { return c.Patch(ctx, o, p, opts...) })
			})
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return m.write(o, false, func() error { return c.Delete(ctx, o, opts...) })
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption) error {
			all := (&client.DeleteAllOfOptions{}).ApplyOptions(opts)
			named := o.DeepCopyObject().(client.Object)
			named.SetNamespace(all.Namespace)
			if all.LabelSelector != nil {
				world, _ := all.LabelSelector.RequiresExactMatch(WorldLabel)
				named.SetName(world)
			}
			return m.write(named, false, func() error {
				defer m.forgets(named)
				return c.DeleteAllOf(ctx, o, opts...)
			})
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			dry := len((&client.SubResourceUpdateOptions{}).ApplyOptions(opts).DryRun) > 0
			return m.write(o, !dry, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			dry := len((&client.SubResourcePatchOptions{}).ApplyOptions(opts).DryRun) > 0
			return withWhole(o, func(o client.Object) error {
				return m.write(o, !dry, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
			})
		},
	})
}

// withWhole writes to the whole node where metadata was to be the answer, so that the answer can be kept.
func withWhole(o client.Object, write func(client.Object) error) error {
	metadata, ok := o.(*metav1.PartialObjectMetadata)
	if !ok || metadata.Kind != "Node" {
		return write(o)
	}
	n := &corev1.Node{ObjectMeta: metadata.ObjectMeta}
	err := write(n)
	n.ObjectMeta.DeepCopyInto(&metadata.ObjectMeta)
	return err
}

// forgets drops all that is known of the set of an object.
func (m *answers) forgets(o client.Object) {
	if name := of(o, client.ObjectKeyFromObject(o)); name != "" {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.set(name).forget()
	}
}
