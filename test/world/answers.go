package world

import (
	"context"
	"regexp"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// answers gives reads of a world's pods and nodes from the last answer, until something of them is written, as an informer
// does that is up to date: every write comes through here, and nothing else runs that could write. Nine of ten requests
// were such reads.
type answers struct {
	mu     sync.Mutex
	writes map[string]int            // by scope
	kept   map[string]map[string]any // answers by scope and question
	open   map[string]bool           // scopes that somebody else writes
}

// memory is that of API.
var memory = &answers{writes: map[string]int{}, kept: map[string]map[string]any{}, open: map[string]bool{}}

// forgoes keeps no answers about a world: a controller with a client of its own writes there.
func (m *answers) forgoes(world string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, scope := range []string{"pods/" + world, "nodes/" + world} {
		m.open[scope] = true
		delete(m.kept, scope)
	}
}

// scope is what an object's write makes doubtful: the pods of its namespace, or the nodes of its world.
func scope(o client.Object) string {
	switch o.(type) {
	case *corev1.Pod:
		return "pods/" + o.GetNamespace()
	case *corev1.Node:
		return "nodes/" + worldName.FindString(o.GetName())
	}
	return ""
}

var worldName = regexp.MustCompile(`^world-\d+`)

// remembered is the kept answer to a question, else that of the API server. An answer that a write has overtaken is not kept.
func remembered[T any](m *answers, scope, question string, ask func() (T, error)) (T, error) {
	m.mu.Lock()
	have, ok := m.kept[scope][question]
	writes := m.writes[scope]
	m.mu.Unlock()
	if ok {
		return have.(T), nil
	}
	answer, err := ask()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && m.writes[scope] == writes && !m.open[scope] {
		if m.kept[scope] == nil {
			m.kept[scope] = map[string]any{}
		}
		m.kept[scope][question] = answer
	}
	return answer, err
}

// wrote forgets what a write, whatever came of it, has made doubtful.
func (m *answers) wrote(scope string, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes[scope]++
	delete(m.kept, scope)
	return err
}

func (m *answers) list(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	if o.FieldSelector != nil || o.LabelSelector == nil {
		return c.List(ctx, list, opts...)
	}
	switch list := list.(type) {
	case *corev1.PodList:
		if o.Namespace == "" {
			break
		}
		all, err := remembered(m, "pods/"+o.Namespace, "", func() (*corev1.PodList, error) {
			all := &corev1.PodList{}
			return all, c.List(ctx, all, client.InNamespace(o.Namespace))
		})
		if err != nil {
			return err
		}
		list.Items = nil
		for i := range all.Items {
			if o.LabelSelector.Matches(labels.Set(all.Items[i].Labels)) {
				list.Items = append(list.Items, *all.Items[i].DeepCopy())
			}
		}
		return nil
	case *corev1.NodeList:
		world, ok := o.LabelSelector.RequiresExactMatch(WorldLabel)
		if !ok {
			break
		}
		all, err := remembered(m, "nodes/"+world, o.LabelSelector.String(), func() (*corev1.NodeList, error) {
			all := &corev1.NodeList{}
			return all, c.List(ctx, all, &client.ListOptions{LabelSelector: o.LabelSelector}) // whole, whoever asked for a page
		})
		if err == nil {
			all.DeepCopyInto(list)
		}
		return err
	}
	return c.List(ctx, list, opts...)
}

func (m *answers) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	n, ok := o.(*corev1.Node)
	if !ok {
		return c.Get(ctx, key, o, opts...)
	}
	have, err := remembered(m, "nodes/"+worldName.FindString(key.Name), "get "+key.Name, func() (*corev1.Node, error) {
		n := &corev1.Node{}
		return n, c.Get(ctx, key, n, opts...)
	})
	if err == nil {
		have.DeepCopyInto(n)
	}
	return err
}

// remembering is the client that gives kept answers.
func remembering(c client.WithWatch) client.WithWatch {
	m := memory
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: m.get, List: m.list,
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return m.wrote(scope(o), c.Create(ctx, o, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return m.wrote(scope(o), c.Update(ctx, o, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return m.wrote(scope(o), c.Patch(ctx, o, p, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return m.wrote(scope(o), c.Delete(ctx, o, opts...))
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return m.wrote(scope(o), c.SubResource(sub).Update(ctx, o, opts...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return m.wrote(scope(o), c.SubResource(sub).Patch(ctx, o, p, opts...))
		},
	})
}
