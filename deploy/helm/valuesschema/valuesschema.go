// Package valuesschema makes the chart's values.schema.json: the chart's own values as written in
// base.yaml, and definitions of the controller's configuration and of Kubernetes' types taken
// from the Go types, so that the chart refuses the same unknown keys as the controller, with
// the limits of its fields (package limits).
package valuesschema

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/limits"
	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"
)

//go:embed base.yaml
var base []byte

// roots are the types that base.yaml refers to.
var roots = []any{
	config.Config{},
	appsv1.DeploymentStrategy{},
	corev1.Affinity{}, corev1.EnvFromSource{}, corev1.EnvVar{}, corev1.HostAlias{},
	corev1.LocalObjectReference{}, corev1.PodDNSConfig{},
	corev1.PodSecurityContext{},
	corev1.ResourceRequirements{}, corev1.SecurityContext{}, corev1.Toleration{},
	corev1.TopologySpreadConstraint{}, corev1.Volume{}, corev1.VolumeMount{},
	networkingv1.NetworkPolicyEgressRule{}, networkingv1.NetworkPolicyPeer{},
	rbacv1.PolicyRule{},
}

// leaves are types whose YAML form differs from their Go form, or is one of a few words.
var leaves = map[reflect.Type]map[string]any{
	reflect.TypeFor[resource.Quantity]():  {"type": []string{"string", "number"}},
	reflect.TypeFor[intstr.IntOrString](): {"type": []string{"string", "integer"}},
	// As time.ParseDuration reads them.
	reflect.TypeFor[metav1.Duration](): {
		"type": "string", "pattern": `^[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+$`,
	},
	reflect.TypeFor[metav1.Time]():          {"type": "string"},
	reflect.TypeFor[config.AdmissionMode](): {"enum": []any{false}}, // and the words of its tag: Helm reads off as false
	reflect.TypeFor[config.Preset]():        words(presetNames()...),
	reflect.TypeFor[corev1.PullPolicy]():    words("", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever),
	reflect.TypeFor[corev1.TaintEffect](): words("",
		corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute),
}

func presetNames() []config.Preset {
	var names []config.Preset
	for _, d := range config.Presets() {
		names = append(names, d.Name)
	}
	return names
}

func words[T ~string](values ...T) map[string]any {
	return map[string]any{"enum": values}
}

// Generate returns values.schema.json. Each alert name is one that prometheusRule.disabled and
// prometheusRule.overrides may mention.
func Generate(alertNames []string) ([]byte, error) {
	var schema map[string]any
	if err := yaml.UnmarshalStrict(base, &schema); err != nil {
		return nil, fmt.Errorf("base.yaml: %w", err)
	}
	definitions := map[string]any{"alertName": map[string]any{"enum": alertNames}}
	for _, root := range roots {
		of(reflect.TypeOf(root), definitions)
	}
	schema["definitions"] = definitions
	out, err := json.MarshalIndent(schema, "", " ")
	if err != nil {
		return nil, err
	}
	return append(out, '\n'), nil
}

// of returns the schema of one type, adding the structs it meets to definitions.
func of(t reflect.Type, definitions map[string]any) map[string]any {
	if leaf, ok := leaves[t]; ok {
		return leaf
	}
	switch t.Kind() {
	case reflect.Pointer:
		return of(t.Elem(), definitions)
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return map[string]any{"type": "string"}
		}
		return map[string]any{"type": "array", "items": of(t.Elem(), definitions)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": of(t.Elem(), definitions)}
	case reflect.Struct:
		name := definitionName(t)
		if _, seen := definitions[name]; !seen {
			definitions[name] = nil // stops a type that contains itself
			properties := map[string]any{}
			required := fields(t, properties, definitions)
			object := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
			if len(required) > 0 {
				slices.Sort(required)
				object["required"] = required
			}
			definitions[name] = object
			if short, ok := reflect.New(t).Interface().(strictyaml.Shorthand); ok {
				definitions[name] = map[string]any{"anyOf": []any{
					properties[short.Shorthand(false)], properties[short.Shorthand(true)], object}}
			}
		}
		return map[string]any{"$ref": "#/definitions/" + name}
	default:
		return map[string]any{}
	}
}

// definitionName is the type's name after its package's, with the API group where the package is
// named after a version: config.Worker, core.v1.Container.
func definitionName(t reflect.Type) string {
	dir, pkg := path.Split(t.PkgPath())
	if strings.HasPrefix(pkg, "v1") {
		pkg = path.Base(dir) + "." + pkg
	}
	return pkg + "." + t.Name()
}

// fields adds the properties of a struct, those of embedded structs included, and returns the keys that it must have.
func fields(t reflect.Type, properties, definitions map[string]any) (required []string) {
	for field := range t.Fields() {
		name, omit, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case field.Anonymous && name == "":
			embedded := field.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			required = append(required, fields(embedded, properties, definitions)...)
		default:
			if name == "" {
				name = field.Name
			}
			limit := limits.Of(field)
			properties[name] = limited(maps.Clone(of(field.Type, definitions)), limit)
			if limit.Required && omit == "" {
				required = append(required, name)
			}
		}
	}
	return required
}

// limited is the schema of a field with its limits.
func limited(schema map[string]any, l limits.Limit) map[string]any {
	single := schema // what the limits are of: an entry of a list
	if items, ok := schema["items"].(map[string]any); ok {
		single = maps.Clone(items)
		schema["items"] = single
		if l.Required {
			schema["minItems"] = 1
		}
		if len(l.Enum) > 0 {
			schema["uniqueItems"] = true
		}
	} else if single["type"] == "string" && l.Required && l.Format == nil {
		single["minLength"] = 1
	}
	or, _, _ := strings.Cut(l.Or, " ")
	switch {
	case l.Minimum == "" || strings.HasSuffix(l.Minimum, "s"): // a duration is a string
	case or != "":
		single["anyOf"] = []any{bounds(l, map[string]any{}), map[string]any{"const": limits.Number(or)}}
	default:
		bounds(l, single)
	}
	absent := single["type"] == "string" && !l.Required && schema["items"] == nil // an empty text stands for the default
	if f := l.Format; f != nil {
		single["pattern"] = f.Pattern.String()
		if absent && !f.Pattern.MatchString("") {
			single["pattern"] = "^$|" + f.Pattern.String()
		}
		if f.MaxLength > 0 {
			single["maxLength"] = f.MaxLength
		}
	}
	if len(l.Enum) > 0 {
		words, _ := single["enum"].([]any)
		words = slices.Clone(words)
		if absent {
			words = append(words, "")
		}
		for _, word := range l.Enum {
			words = append(words, word)
		}
		delete(single, "type")
		delete(single, "minLength")
		single["enum"] = words
	}
	return schema
}

// bounds adds the bounds of a number to a schema.
func bounds(l limits.Limit, schema map[string]any) map[string]any {
	schema["minimum"] = limits.Number(l.Minimum)
	if l.Maximum != "" {
		schema["maximum"] = limits.Number(l.Maximum)
	}
	return schema
}
