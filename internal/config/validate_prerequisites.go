package config

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/limits"
)

// NodePlaceholder in the selector of a ResourcePrerequisite stands for the node's name.
const NodePlaceholder = "{{node}}"

// ownCondition is the condition that the controller itself writes on nodes.
const ownCondition = "node-ready/Verified"

// Validate reports prerequisites that are given twice, or that would never hold.
func (r *Prerequisites) Validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	seen := map[corev1.NodeConditionType]bool{}
	for i, c := range r.Conditions {
		at := p.Child("conditions").Index(i)
		switch {
		case c.Type == ownCondition:
			faults = append(faults, field.Invalid(at.Child("type"), c.Type,
				"is what verification itself reports, so a node would never stop waiting for it"))
		case seen[c.Type]:
			faults = append(faults, field.Duplicate(at.Child("type"), c.Type))
		}
		seen[c.Type] = c.Type != ""
	}
	faults = append(faults, csiNodes(p.Child("csiNodes"), r.CSINodes)...)
	faults = append(faults, allocatable(p.Child("allocatable"), r.Allocatable)...)
	drivers := map[string]bool{}
	for i, s := range r.ResourceSlices {
		faults = append(faults, driver(p.Child("resourceSlices").Index(i).Child("driver"), s.Driver, drivers)...)
	}
	return faults
}

// Validate reports DaemonSets that are given twice, and exclusions from nothing.
func (d *DaemonSets) Validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	if len(d.Exclude) > 0 && d.Mode != DaemonSetsAuto {
		faults = append(faults, field.Forbidden(p.Child("exclude"), "only with mode: auto is there something to exclude from"))
	}
	list := p // where it stands without its key
	if d.Mode != "" || len(d.Exclude) > 0 {
		list = p.Child("named")
	}
	for i := range d.Named {
		entry, at := &d.Named[i], list.Index(i)
		same := func(other DaemonSetPrerequisite) bool { return other.String() == entry.String() }
		if slices.IndexFunc(d.Named, same) < i {
			faults = append(faults, field.Duplicate(at, entry.String()))
		}
	}
	return append(faults, daemonSetNames(p.Child("exclude"), d.Exclude)...)
}

// Validate reports an entry that names nothing, or names it in two ways.
func (d *DaemonSetPrerequisite) Validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	if len(d.AnyOf) > 0 {
		faults = daemonSetNames(p.Child("anyOf"), d.AnyOf)
		if d.Namespace != "" || d.Name != "" {
			faults = append(faults, field.Forbidden(p.Child("anyOf"), "not beside namespace and name; put them into the list"))
		}
	} else {
		faults = limits.Validate(p, &DaemonSetName{Namespace: d.Namespace, Name: d.Name})
	}
	if d.Provides == nil {
		return faults
	}
	at := p.Child("provides")
	if len(d.Provides.CSINodes)+len(d.Provides.Allocatable) == 0 {
		faults = append(faults, field.Required(at, "csiNodes or allocatable; without either, leave it out"))
	}
	return append(faults, append(csiNodes(at.Child("csiNodes"), d.Provides.CSINodes), allocatable(at.Child("allocatable"), d.Provides.Allocatable)...)...)
}

func daemonSetNames(p *field.Path, names []DaemonSetName) field.ErrorList {
	var faults field.ErrorList
	for i, n := range names {
		if slices.Index(names, n) < i {
			faults = append(faults, field.Duplicate(p.Index(i), n.String()))
		}
	}
	return faults
}

func csiNodes(p *field.Path, list []CSINodePrerequisite) field.ErrorList {
	var faults field.ErrorList
	drivers := map[string]bool{}
	for i, c := range list {
		faults = append(faults, driver(p.Index(i).Child("driver"), strings.ToLower(c.Driver), drivers)...)
	}
	return faults
}

func allocatable(p *field.Path, resources corev1.ResourceList) field.ErrorList {
	var faults field.ErrorList
	for _, name := range sortedKeys(resources) {
		at := p.Key(string(name))
		faults = append(faults, each(at, name, validation.IsQualifiedName(string(name)))...)
		if quantity := resources[name]; quantity.Sign() <= 0 {
			faults = append(faults, field.Invalid(at, quantity.String(), "must be greater than 0"))
		}
	}
	return faults
}

// driver faults a driver's name that was seen before.
func driver(p *field.Path, name string, seen map[string]bool) field.ErrorList {
	var faults field.ErrorList
	if seen[name] {
		faults = append(faults, field.Duplicate(p, name))
	}
	seen[name] = name != ""
	return faults
}

// Validate reports what is not valid as a selector or as an annotation.
func (r *PodPrerequisite) Validate(p *field.Path) field.ErrorList {
	faults := selector(p.Child("selector"), &r.Selector)
	if r.ReadyAnnotation == "" {
		if r.ReadyBy != "" {
			faults = append(faults, field.Invalid(p.Child("readyBy"), r.ReadyBy, "needs a readyAnnotation; without one the condition Ready is all there is"))
		}
		return faults
	}
	key, value := r.Annotation()
	faults = append(faults, each(p.Child("readyAnnotation"), r.ReadyAnnotation, validation.IsQualifiedName(strings.ToLower(key)))...)
	if value == "" {
		faults = append(faults, field.Invalid(p.Child("readyAnnotation"), r.ReadyAnnotation, "must have a value after =, or be the key alone for the value true"))
	}
	return faults
}

// Validate reports what is not valid as an API version or as a selector.
func (r *ResourcePrerequisite) Validate(p *field.Path) field.ErrorList {
	faults := apiVersion(p.Child("apiVersion"), r.APIVersion)
	example := strings.ReplaceAll(r.Selector, NodePlaceholder, "node")
	switch _, err := labels.Parse(example); {
	case strings.Contains(example, "{{") || strings.Contains(example, "}}"):
		faults = append(faults, field.Invalid(p.Child("selector"), r.Selector, NodePlaceholder+" is the only placeholder, and is written without spaces"))
	case err != nil:
		faults = append(faults, field.Invalid(p.Child("selector"), r.Selector, "is not a label selector: "+err.Error()))
	}
	return faults
}

func apiVersion(p *field.Path, version string) field.ErrorList {
	gv, err := schema.ParseGroupVersion(version)
	if err != nil || gv.Version == "" || strings.HasPrefix(version, "/") {
		return field.ErrorList{field.Invalid(p, version, "must be group/version as in cilium.io/v2, or v1")}
	}
	var faults field.ErrorList
	if gv.Group != "" {
		faults = each(p, version, validation.IsDNS1123Subdomain(gv.Group))
	}
	return append(faults, each(p, version, validation.IsDNS1035Label(gv.Version))...)
}
