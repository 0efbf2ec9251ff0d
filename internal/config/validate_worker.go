package config

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/worker"
)

// ownPrefix begins every label and annotation key that the controller sets.
const ownPrefix = "node-ready/"

// workerContainer is the container whose exit code counts.
const workerContainer = "worker"

var (
	// ownLabels are the labels by which the controller finds its pods.
	ownLabels = []string{"app.kubernetes.io/name", "app.kubernetes.io/component"}
	// ownEnv is the part of the worker's environment that the controller sets.
	ownEnv = []string{"NODE_NAME", "POD_NAMESPACE", "LOG_LEVEL", "LOG_FORMAT", worker.EnvVar}
)

// Validate reports errors that the limits of single values do not cover.
func (w *Worker) Validate(p *field.Path) field.ErrorList {
	faults := w.Config.Validate(p) // of the part that a worker reads
	return append(faults, w.validate(func(key string) *field.Path { return p.Child(key) })...)
}

// sources names the sources that are set in a volume.
func sources(source corev1.VolumeSource) []string {
	var set []string
	v := reflect.ValueOf(source)
	for i := range v.NumField() {
		if !v.Field(i).IsNil() { // every source is a pointer
			set = append(set, jsonName(v.Type().Field(i)))
		}
	}
	return set
}

func validateMounts(path *field.Path, mounts []corev1.VolumeMount, volumes map[string]bool) field.ErrorList {
	var faults field.ErrorList
	seen := map[string]bool{}
	for i, m := range mounts {
		p := path.Index(i)
		switch {
		case m.Name == "":
			faults = append(faults, field.Required(p.Child("name"), "name an entry of volumes"))
		case !volumes[m.Name]:
			faults = append(faults, field.NotFound(p.Child("name"), m.Name))
		}
		switch {
		case m.MountPath == "":
			faults = append(faults, field.Required(p.Child("mountPath"), "set the path where the volume is mounted"))
		case again(seen, m.MountPath):
			faults = append(faults, field.Duplicate(p.Child("mountPath"), m.MountPath))
		}
	}
	return faults
}

func validateEnv(path *field.Path, env []corev1.EnvVar, reserved []string) field.ErrorList {
	var faults field.ErrorList
	seen := map[string]bool{}
	for i, e := range env {
		p := path.Index(i)
		faults = append(faults, named(p.Child("name"), e.Name, validation.IsEnvVarName)...)
		switch {
		case slices.Contains(reserved, e.Name):
			faults = append(faults, field.Invalid(p.Child("name"), e.Name,
				"is set by the controller; use the key of the configuration that controls it"))
		case again(seen, e.Name) && e.Name != "":
			faults = append(faults, field.Duplicate(p.Child("name"), e.Name))
		}
		if e.Value != "" && e.ValueFrom != nil {
			faults = append(faults, field.Invalid(p.Child("valueFrom"), "{...}", "cannot be combined with value"))
		}
	}
	return faults
}

// validateResources also checks that the claims of a container are among those of its pod.
func validateResources(p *field.Path, r corev1.ResourceRequirements, claims map[string]bool) field.ErrorList {
	var faults field.ErrorList
	seen := map[corev1.ResourceClaim]bool{}
	for i, c := range r.Claims {
		at := p.Child("claims").Index(i)
		switch {
		case c.Name == "":
			faults = append(faults, field.Required(at.Child("name"), "name an entry of resourceClaims"))
		case !claims[c.Name]:
			faults = append(faults, field.NotFound(at.Child("name"), c.Name))
		case again(seen, c):
			faults = append(faults, field.Duplicate(at, c.Name))
		}
		if c.Request != "" {
			faults = append(faults, each(at.Child("request"), c.Request, validation.IsDNS1123Label(c.Request))...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		if q := r.Limits[name]; q.Sign() < 0 {
			faults = append(faults, field.Invalid(p.Child("limits").Key(string(name)), q.String(), "must be at least 0"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		at, q := p.Child("requests").Key(string(name)), r.Requests[name]
		if q.Sign() < 0 {
			faults = append(faults, field.Invalid(at, q.String(), "must be at least 0"))
		}
		if limit, ok := r.Limits[name]; ok && q.Cmp(limit) > 0 {
			faults = append(faults, field.Invalid(at, q.String(), "must be at most the limit, "+limit.String()))
		}
	}
	return faults
}
