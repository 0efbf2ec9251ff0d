// Package resourceslices is prerequisites.resourceSlices.
package resourceslices

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
)

// Settings are DRA drivers that must have published every pool of the node. They need Kubernetes 1.34.
type Settings []Entry

// Entry is met when the driver has published at least one pool for the node, and of every pool all ResourceSlices of
// its newest generation.
type Entry struct {
	// Driver is the DRA driver's name, as gpu.nvidia.com.
	Driver string `json:"driver" required:"" format:"dra-driver"`
}

// InDaemonSetMode says what to configure there instead.
func (Settings) InDaemonSetMode() string { return "wait for the driver's pod under pods" }

// Validate reports drivers that are given twice.
func (s Settings) Validate(p *field.Path) (faults field.ErrorList) {
	seen := map[string]bool{}
	for i, e := range s {
		if seen[e.Driver] {
			faults = append(faults, field.Duplicate(p.Index(i).Child("driver"), e.Driver))
		}
		seen[e.Driver] = e.Driver != ""
	}
	return faults
}

func slicesOf(driver string) *kind.Source {
	return &kind.Source{
		Kind: resourcev1.SchemeGroupVersion.WithKind("ResourceSlice"), Object: &resourcev1.ResourceSlice{},
		Fields:   fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, driver).String(),
		Optional: "resource.k8s.io/v1 needs Kubernetes 1.34", // KEP-4381: stable since then
		Indexes: kind.Index(kind.ByNode, func(s *resourcev1.ResourceSlice) string {
			if s.Spec.NodeName == nil {
				return ""
			}
			return *s.Spec.NodeName
		}),
		Slim: kind.Slim(func(s *resourcev1.ResourceSlice) any {
			s.ManagedFields, s.Labels, s.Annotations = nil, nil, nil
			s.Spec = resourcev1.ResourceSliceSpec{Driver: s.Spec.Driver, Pool: s.Spec.Pool, NodeName: s.Spec.NodeName}
			return s
		}),
		Same: kind.Same(func(a, b *resourcev1.ResourceSlice) bool {
			return a.UID == b.UID && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
				equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) && equality.Semantic.DeepEqual(a.Spec, b.Spec)
		}),
		Why: "which devices a DRA driver has published",
	}
}

// Prerequisites are the drivers.
func (s Settings) Prerequisites() (all []kind.Prerequisite) {
	for _, e := range s {
		source := slicesOf(e.Driver)
		unmet := func(n *corev1.Node, in kind.Cluster) kind.Unmet {
			found, why := in.Find(source, kind.ByNode, n.Name)
			if why == "" {
				why = incomplete(found, n)
			}
			if why == "" {
				return kind.Unmet{}
			}
			return kind.Unmet{Why: fmt.Sprintf("ResourceSlices of driver %s (%s)", e.Driver, why)}
		}
		all = append(all, kind.Prerequisite{Name: e.Driver, Sources: []*kind.Source{source}, Unmet: unmet})
	}
	return all
}

// pool is what is known of a pool's newest generation.
type pool struct{ generation, have, want int64 }

// incomplete says which pool of the node is not complete, the first by name, or that there is none. Of a pool only the
// highest generation counts, and it is complete with resourceSliceCount slices (ResourcePool in
// k8s.io/api/resource/v1).
func incomplete(found []any, n *corev1.Node) string {
	pools := map[string]pool{}
	for _, o := range found {
		s := o.(*resourcev1.ResourceSlice)
		// A driver's helper makes the node the owner.
		earlier := func(o metav1.OwnerReference) bool { return o.Kind == "Node" && o.UID != n.UID }
		if s.DeletionTimestamp != nil || slices.ContainsFunc(s.OwnerReferences, earlier) {
			continue
		}
		p := pools[s.Spec.Pool.Name]
		if p.have == 0 || s.Spec.Pool.Generation > p.generation {
			p = pool{generation: s.Spec.Pool.Generation, want: s.Spec.Pool.ResourceSliceCount}
		}
		if s.Spec.Pool.Generation == p.generation {
			p.have++
		}
		pools[s.Spec.Pool.Name] = p
	}
	first := ""
	for name, p := range pools {
		if p.have != p.want && (first == "" || name < first) {
			first = name
		}
	}
	switch p := pools[first]; {
	case len(pools) == 0:
		return "there are none for the node"
	case first != "":
		return fmt.Sprintf("%d of %d of pool %s in generation %d", p.have, p.want, first, p.generation)
	}
	return ""
}
