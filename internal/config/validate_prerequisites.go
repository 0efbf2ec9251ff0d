package config

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NodePlaceholder in the selector of a ResourcePrerequisite stands for the node's name.
const NodePlaceholder = "{{node}}"

// ownCondition is the condition that the controller itself writes on nodes.
const ownCondition = "node-ready/Verified"

func (r *Prerequisites) validate(p *field.Path) field.ErrorList {
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
		default:
			faults = append(faults, named(at.Child("type"), string(c.Type), validation.IsQualifiedName)...)
		}
		seen[c.Type] = c.Type != ""
		faults = append(faults, oneOf(at.Child("status"), c.Status, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown)...)
	}
	for i := range r.Pods {
		faults = append(faults, r.Pods[i].validate(p.Child("pods").Index(i))...)
	}
	faults = append(faults, r.DaemonSets.validate(p.Child("daemonSets"))...)
	faults = append(faults, csiNodes(p.Child("csiNodes"), r.CSINodes)...)
	faults = append(faults, allocatable(p.Child("allocatable"), r.Allocatable)...)
	drivers := map[string]bool{}
	for i, s := range r.ResourceSlices {
		faults = append(faults, driver(p.Child("resourceSlices").Index(i).Child("driver"), s.Driver, drivers)...)
	}
	for i := range r.Resources {
		faults = append(faults, r.Resources[i].validate(p.Child("resources").Index(i))...)
	}
	return faults
}

func (d *DaemonSets) validate(p *field.Path) field.ErrorList {
	// The path is that of the whole, as the mode may stand there without its key.
	faults := oneOf(p, cmp.Or(d.Mode, DaemonSetsNone), DaemonSetsNone, DaemonSetsAuto)
	if len(d.Exclude) > 0 && d.Mode != DaemonSetsAuto {
		faults = append(faults, field.Forbidden(p.Child("exclude"), "only with mode: auto is there something to exclude from"))
	}
	list := p // where it stands without its key
	if d.Mode != "" || len(d.Exclude) > 0 {
		list = p.Child("named")
	}
	for i := range d.Named {
		entry, at := &d.Named[i], list.Index(i)
		faults = append(faults, entry.validate(at)...)
		same := func(other DaemonSetPrerequisite) bool { return other.String() == entry.String() }
		if slices.IndexFunc(d.Named, same) < i {
			faults = append(faults, field.Duplicate(at, entry.String()))
		}
	}
	return append(faults, daemonSetNames(p.Child("exclude"), d.Exclude)...)
}

func (d *DaemonSetPrerequisite) validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	if len(d.AnyOf) > 0 {
		faults = daemonSetNames(p.Child("anyOf"), d.AnyOf)
		if d.Namespace != "" || d.Name != "" {
			faults = append(faults, field.Forbidden(p.Child("anyOf"), "not beside namespace and name; put them into the list"))
		}
	} else {
		faults = daemonSetName(p, DaemonSetName{Namespace: d.Namespace, Name: d.Name})
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

func daemonSetName(p *field.Path, n DaemonSetName) field.ErrorList {
	return append(named(p.Child("namespace"), n.Namespace, validation.IsDNS1123Label), named(p.Child("name"), n.Name, validation.IsDNS1123Subdomain)...)
}

func daemonSetNames(p *field.Path, names []DaemonSetName) field.ErrorList {
	var faults field.ErrorList
	for i, n := range names {
		faults = append(faults, daemonSetName(p.Index(i), n)...)
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

// maxDriverLength is that of a CSI driver's name (ValidateCSIDriverName in k8s.io/kubernetes pkg/apis/core/validation)
// and of a DRA driver's (DriverNameMaxLength in k8s.io/api/resource/v1).
const maxDriverLength = 63

// driver faults a driver's name that the API server would not take, or that was seen before.
func driver(p *field.Path, name string, seen map[string]bool) field.ErrorList {
	faults := named(p, name, validation.IsDNS1123Subdomain)
	if len(name) > maxDriverLength {
		faults = append(faults, field.TooLong(p, name, maxDriverLength))
	}
	if seen[name] {
		faults = append(faults, field.Duplicate(p, name))
	}
	seen[name] = name != ""
	return faults
}

func (r *PodPrerequisite) validate(p *field.Path) field.ErrorList {
	faults := named(p.Child("namespace"), r.Namespace, validation.IsDNS1123Label)
	if r.Namespace == "" && r.ReadyAnnotation != "" {
		faults = field.ErrorList{field.Required(p.Child("namespace"), "name it: whoever may annotate its pods says when nodes are ready")}
	}
	faults = append(faults, selector(p.Child("selector"), &r.Selector, "select the pods; an empty selector would be met by any pod")...)
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
	return append(faults, oneOf(p.Child("readyBy"), r.ReadyBy, ReadyByAny, ReadyByAnnotation, ReadyByBoth)...)
}

// kindForm is the form that the API server asks of a custom resource's kind, in upper camel
// case as the API conventions have it.
var kindForm = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)

func (r *ResourcePrerequisite) validate(p *field.Path) field.ErrorList {
	faults := apiVersion(p.Child("apiVersion"), r.APIVersion)
	switch {
	case r.Kind == "":
		faults = append(faults, field.Required(p.Child("kind"), "as in CiliumNode"))
	case !kindForm.MatchString(r.Kind):
		faults = append(faults, field.Invalid(p.Child("kind"), r.Kind, "must be a kind in upper camel case, as in CiliumNode"))
	}
	if r.Namespace != "" {
		faults = append(faults, named(p.Child("namespace"), r.Namespace, validation.IsDNS1123Label)...)
	}
	example := strings.ReplaceAll(r.Selector, NodePlaceholder, "node")
	switch _, err := labels.Parse(example); {
	case strings.Contains(example, "{{") || strings.Contains(example, "}}"):
		faults = append(faults, field.Invalid(p.Child("selector"), r.Selector, NodePlaceholder+" is the only placeholder, and is written without spaces"))
	case err != nil:
		faults = append(faults, field.Invalid(p.Child("selector"), r.Selector, "is not a label selector: "+err.Error()))
	}
	faults = append(faults, named(p.Child("condition"), r.Condition, validation.IsQualifiedName)...)
	return append(faults, oneOf(p.Child("status"), r.Status, metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown)...)
}

func apiVersion(p *field.Path, version string) field.ErrorList {
	if version == "" {
		return field.ErrorList{field.Required(p, "as in cilium.io/v2")}
	}
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
