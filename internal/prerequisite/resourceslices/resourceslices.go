// Package resourceslices is prerequisites.resourceSlices.
package resourceslices

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
)

// Settings are DRA drivers that must have published every pool of the node, with devices. They need Kubernetes 1.34.
type Settings []Entry

// Entry is met when the driver has published at least one pool for the node, of every pool all ResourceSlices of its
// newest generation, and enough devices in all.
type Entry struct {
	// Driver is the DRA driver's name, for example gpu.nvidia.com.
	Driver string `json:"driver" required:"" format:"dra-driver"`
	// MinDevices is the minimum number of devices in all pools together. Default 1.
	MinDevices *int32 `json:"minDevices,omitempty" minimum:"1"`
}

// SetDefaults fills each entry's minDevices.
func (s Settings) SetDefaults() {
	for i := range s {
		s[i].MinDevices = cmp.Or(s[i].MinDevices, new(int32(1)))
	}
}

// InDaemonSetMode says what to configure there instead.
func (Settings) InDaemonSetMode() string {
	return "use prerequisites.pods to wait for the driver's pod"
}

// Validate reports drivers that are given twice.
func (s Settings) Validate(p *field.Path) field.ErrorList {
	name := func(e Entry) string { return e.Driver }
	return kind.Duplicates(s, name, func(i int) *field.Path { return p.Index(i).Child("driver") })
}

// With adds drivers; of two numbers of devices the larger counts.
func (s Settings) With(more Settings) Settings {
	all := slices.Clone(s)
	for _, m := range more {
		i := slices.IndexFunc(all, func(have Entry) bool { return have.Driver == m.Driver })
		if i < 0 {
			all = append(all, m)
		} else {
			all[i].MinDevices = new(max(all[i].minDevices(), m.minDevices()))
		}
	}
	return all
}

func (e Entry) minDevices() int32 { return ptr.Deref(e.MinDevices, 1) }

// slice is what is kept of a ResourceSlice.
type slice struct {
	metav1.ObjectMeta // name, UID, resource version, owners and times of creation and deletion
	node              string
	pool              resourcev1.ResourcePool
	devices           int
}

func slicesOf(driver string) *kind.Source {
	return &kind.Source{
		Kind: resourcev1.SchemeGroupVersion.WithKind("ResourceSlice"), Object: &resourcev1.ResourceSlice{},
		Fields:   fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, driver).String(),
		Optional: "resource.k8s.io/v1 needs Kubernetes 1.34", // KEP-4381: stable since then
		Indexes:  kind.Index(kind.ByNode, func(s *slice) string { return s.node }),
		Slim: kind.Slim(func(s *resourcev1.ResourceSlice) any {
			return &slice{node: ptr.Deref(s.Spec.NodeName, ""), pool: s.Spec.Pool, devices: len(s.Spec.Devices),
				ObjectMeta: metav1.ObjectMeta{Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion,
					OwnerReferences: s.OwnerReferences, CreationTimestamp: s.CreationTimestamp,
					DeletionTimestamp: s.DeletionTimestamp}}
		}),
		Same: kind.Same(func(a, b *slice) bool {
			return a.UID == b.UID && a.node == b.node && a.pool == b.pool && a.devices == b.devices &&
				a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
				equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
		}),
		Why: "which devices a DRA driver has published",
	}
}

// Prerequisites are the drivers.
func (s Settings) Prerequisites() (all []kind.Prerequisite) {
	for _, e := range s {
		all = append(all, kind.OfNode(e.Driver, "ResourceSlices of driver "+e.Driver, slicesOf(e.Driver), e.missing))
	}
	return all
}

// pool is what is known of a pool's newest generation.
type pool struct {
	generation, have, want int64
	devices                int
}

// missing says which pool of the node is not complete, the first by name, or that there is none, or how many devices
// there are, or which slice does not count yet. Of a pool only the highest generation counts, and it is complete with
// resourceSliceCount slices (ResourcePool in k8s.io/api/resource/v1).
func (e Entry) missing(n *corev1.Node, found []any, in kind.Cluster) string {
	pools, stale := map[string]pool{}, ""
	byName := func(a, b any) int { return cmp.Compare(a.(*slice).Name, b.(*slice).Name) }
	for _, o := range slices.SortedFunc(slices.Values(found), byName) { // so that the message does not vary with the order
		s := o.(*slice)
		// A driver's helper makes the node the owner.
		earlier := func(o metav1.OwnerReference) bool { return o.Kind == "Node" && o.UID != n.UID }
		if s.DeletionTimestamp != nil || slices.ContainsFunc(s.OwnerReferences, earlier) {
			continue
		}
		why := in.Stale(n, kind.Object{ID: string(s.UID), Created: s.CreationTimestamp, Sign: s.ResourceVersion})
		if why != "" && stale == "" {
			stale = s.Name + " " + why
		}
		p := pools[s.pool.Name]
		if p.have == 0 || s.pool.Generation > p.generation {
			p = pool{generation: s.pool.Generation, want: s.pool.ResourceSliceCount}
		}
		if s.pool.Generation == p.generation {
			p.have++
			p.devices += s.devices
		}
		pools[s.pool.Name] = p
	}
	if len(pools) == 0 {
		return "there are none for the node"
	}
	devices := 0
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		p := pools[name]
		if p.have != p.want {
			return fmt.Sprintf("%d of %d slices of pool %s in generation %d", p.have, p.want, name, p.generation)
		}
		devices += p.devices
	}
	if least := int(e.minDevices()); devices < least {
		return fmt.Sprintf("they have %d devices, expected at least %d", devices, least)
	}
	return stale
}
