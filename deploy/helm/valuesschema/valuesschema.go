// Package valuesschema makes the chart's values.schema.json: the chart's own values as written in
// base.yaml, and definitions of the controller's configuration and of Kubernetes' types taken
// from the Go types, so that the chart refuses the same unknown keys as the controller, with the limits that the controller
// itself tells (limits.go).
package valuesschema

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
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
	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"
)

//go:embed base.yaml
var base []byte

// roots are the types that base.yaml refers to.
var roots = []any{
	config.Config{},
	appsv1.DeploymentStrategy{},
	corev1.Affinity{}, corev1.EnvFromSource{}, corev1.EnvVar{}, corev1.HostAlias{}, corev1.LocalObjectReference{}, corev1.PodDNSConfig{},
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
	reflect.TypeFor[metav1.Duration]():        {"type": "string", "pattern": `^[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+$`},
	reflect.TypeFor[metav1.Time]():            {"type": "string"},
	reflect.TypeFor[config.Scheduling]():      words(config.SchedulingDirect, config.SchedulingScheduler),
	reflect.TypeFor[config.Backoff]():         words(config.BackoffExponential, config.BackoffLinear),
	reflect.TypeFor[config.PerNode]():         words(config.PerNodeAll, config.PerNodeUnverified, config.PerNodeNone),
	reflect.TypeFor[config.AdmissionMode]():   {"enum": []any{config.AdmissionOff, false, config.AdmissionAuto, config.AdmissionPolicy, config.AdmissionWebhook}},
	reflect.TypeFor[config.FailurePolicy]():   words(config.FailureIgnored, config.FailureFails),
	reflect.TypeFor[config.DaemonSetMode]():   words(config.DaemonSetsNone, config.DaemonSetsAuto),
	reflect.TypeFor[config.Preset]():          words(presetNames()...),
	reflect.TypeFor[config.ReadyBy]():         words(config.ReadyByAny, config.ReadyByAnnotation, config.ReadyByBoth),
	reflect.TypeFor[corev1.PullPolicy]():      words("", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever),
	reflect.TypeFor[corev1.TaintEffect]():     words("", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute),
	reflect.TypeFor[corev1.ConditionStatus](): words(corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown),
	reflect.TypeFor[metav1.ConditionStatus](): words(metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown),
}

// share is a number of nodes or a percentage of them.
var share = map[string]any{"type": []string{"string", "integer"}, "pattern": config.PercentForm.String(), "minimum": 0}

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
	if err := limit(definitions); err != nil {
		return nil, err
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
			fields(t, properties, definitions)
			definitions[name] = map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
			if short, ok := reflect.New(t).Interface().(strictyaml.Shorthand); ok {
				definitions[name] = map[string]any{"anyOf": []any{properties[short.Shorthand(false)], properties[short.Shorthand(true)], definitions[name]}}
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

// fields adds the properties of a struct, those of embedded structs included.
func fields(t reflect.Type, properties, definitions map[string]any) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case field.Anonymous && name == "":
			embedded := field.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			fields(embedded, properties, definitions)
		default:
			if name == "" {
				name = field.Name
			}
			properties[name] = of(field.Type, definitions)
			if field.Type == reflect.TypeFor[*intstr.IntOrString]() && strings.HasPrefix(t.PkgPath(), module) {
				properties[name] = share
			}
		}
	}
}
