package config

import (
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// Identity is the template's apiVersion, kind and metadata.namespace. The namespace is empty for a cluster-scoped
// object.
func (o *ObjectAction) Identity() (apiVersion, kind, namespace string) {
	apiVersion, _ = o.Template["apiVersion"].(string)
	kind, _ = o.Template["kind"].(string)
	metadata, _ := o.Template["metadata"].(map[string]any)
	namespace, _ = metadata["namespace"].(string)
	return apiVersion, kind, namespace
}

// Placeholders are replaced in the strings of an object's template.
var Placeholders = []string{"{{node}}", "{{nodeUID}}", "{{providerID}}", "{{reason}}", "{{check}}", "{{attempt}}"}

// Validate reports what cannot be created.
func (o *ObjectAction) Validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	if len(o.Template) == 0 {
		return nil // required says so
	}
	template := p.Child("template")
	apiVersion, kind, namespace := o.Identity()
	if apiVersion == "" {
		faults = append(faults, field.Required(template.Child("apiVersion"), "set it, for example to batch/v1"))
	}
	if kind == "" {
		faults = append(faults, field.Required(template.Child("kind"), "set it, for example to Job"))
	}
	if namespace != "" {
		p := template.Child("metadata", "namespace")
		faults = append(faults, each(p, namespace, validation.IsDNS1123Label(namespace))...)
	}
	if metadata, ok := o.Template["metadata"].(map[string]any); ok {
		for _, key := range []string{"name", "generateName", "uid", "resourceVersion"} {
			if _, is := metadata[key]; is {
				faults = append(faults, field.Forbidden(template.Child("metadata", key),
					"remove it: the controller derives the name from the node and the attempt, so that it creates the object only "+
						"once"))
			}
		}
	}
	return append(faults, placeholders(template, o.Template)...)
}

// braced is a word in double braces, with them.
var braced = regexp.MustCompile(`(?s)\{\{.*?\}\}`)

// placeholders reports words in double braces that nothing replaces.
func placeholders(p *field.Path, value any) (faults field.ErrorList) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			faults = append(faults, placeholders(p.Child(key), inner)...)
		}
	case []any:
		for i, inner := range v {
			faults = append(faults, placeholders(p.Index(i), inner)...)
		}
	case string:
		for _, word := range braced.FindAllString(v, -1) {
			if !slices.Contains(Placeholders, word) {
				faults = append(faults, field.NotSupported(p, word, Placeholders))
			}
		}
	}
	return faults
}

// ownedByOthers are conditions that the kubelet and the node controller write
// (https://kubernetes.io/docs/reference/node/node-status/#condition).
var ownedByOthers = []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
	corev1.NodePIDPressure, corev1.NodeNetworkUnavailable}

// maxActions bounds the actions that a record keeps account of.
const maxActions = 8

// validateActions reports entries that do nothing, or that the next one could not follow.
func validateActions(path *field.Path, actions []Action) field.ErrorList {
	var faults field.ErrorList
	if len(actions) == 0 {
		return field.ErrorList{field.Required(path, "name at least one action, or remove the key; the default action is "+
			"delete")}
	}
	if len(actions) > maxActions {
		faults = append(faults, field.TooMany(path, len(actions), maxActions))
	}
	types := map[corev1.NodeConditionType]bool{}
	for i, a := range actions {
		p := path.Index(i)
		set := 0
		for _, is := range []bool{a.Delete != nil, a.Condition != nil, a.Object != nil} {
			if is {
				set++
			}
		}
		switch {
		case set != 1:
			faults = append(faults, field.Invalid(p, fmt.Sprintf("%d of them", set),
				"must have exactly one of delete, condition and object"))
		case a.Delete != nil && i < len(actions)-1:
			faults = append(faults, field.Invalid(p.Child("delete"), "{}",
				"no entry can follow a deletion; make this the last entry"))
		case a.Condition != nil:
			kind := p.Child("condition", "type")
			switch c := a.Condition; {
			case c.Type == marks.ConditionType || slices.Contains(ownedByOthers, c.Type):
				faults = append(faults, field.Invalid(kind, c.Type, "belongs to Kubernetes or to kube-node-ready; choose a type "+
					"that only your repairer uses"))
			case again(types, c.Type):
				faults = append(faults, field.Duplicate(kind, c.Type))
			}
		}
	}
	return faults
}

// ActionKinds are the kinds of the conditions and objects of remediation.actions, as in marks.Remediation.TargetKind,
// each once. Deletions are left out.
func (c *Config) ActionKinds() []string {
	var kinds []string
	for _, a := range c.NodeManagement.Remediation.Actions {
		switch {
		case a.Condition != nil:
			kinds = append(kinds, marks.KindCondition)
		case a.Object != nil:
			_, kind, _ := a.Object.Identity()
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}
