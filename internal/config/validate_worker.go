package config

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
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

// Validate reports what no limit of a single value can.
func (w *Worker) Validate(p *field.Path) field.ErrorList {
	faults := w.Config.Validate(p) // of the part that a worker reads
	faults = append(faults, validateTolerations(p.Child("tolerations"), w.Tolerations)...)
	faults = append(faults, w.validateContainers(p)...)
	faults = append(faults, validateResources(p.Child("resources"), w.Resources)...)
	for i, s := range w.ImagePullSecrets {
		at := p.Child("imagePullSecrets").Index(i).Child("name")
		faults = append(faults, named(at, s.Name, validation.IsDNS1123Subdomain)...)
	}
	return append(faults, w.validateMetadata(p)...)
}

// validateContainers checks what can go wrong between the parts of a pod. The API server
// would refuse most of it too, but only when the first node waits for its worker.
func (w *Worker) validateContainers(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	volumes := map[string]bool{}
	for i, v := range w.Volumes {
		at := p.Child("volumes").Index(i)
		faults = append(faults, named(at.Child("name"), v.Name, validation.IsDNS1123Label)...)
		if volumes[v.Name] && v.Name != "" {
			faults = append(faults, field.Duplicate(at.Child("name"), v.Name))
		}
		volumes[v.Name] = true
		if set := sources(v.VolumeSource); len(set) > 1 {
			faults = append(faults, field.Invalid(at, strings.Join(set, ", "), "a volume has one source"))
		}
	}
	faults = append(faults, validateMounts(p.Child("volumeMounts"), w.VolumeMounts, volumes)...)
	faults = append(faults, validateEnv(p.Child("env"), w.Env, ownEnv)...)
	names := map[string]bool{workerContainer: true}
	for i := range w.InitContainers {
		c, at := &w.InitContainers[i], p.Child("initContainers").Index(i)
		faults = append(faults, named(at.Child("name"), c.Name, validation.IsDNS1123Label)...)
		switch {
		case c.Name == workerContainer:
			faults = append(faults, field.Invalid(at.Child("name"), c.Name,
				"is the name of the container that runs the checks; choose another"))
		case names[c.Name] && c.Name != "":
			faults = append(faults, field.Duplicate(at.Child("name"), c.Name))
		}
		names[c.Name] = true
		if strings.TrimSpace(c.Image) == "" {
			faults = append(faults, field.Required(at.Child("image"), "name the container's image"))
		}
		faults = append(faults, validateMounts(at.Child("volumeMounts"), c.VolumeMounts, volumes)...)
		faults = append(faults, validateEnv(at.Child("env"), c.Env, nil)...)
		faults = append(faults, validateResources(at.Child("resources"), c.Resources)...)
	}
	return faults
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
			faults = append(faults, field.Required(p.Child("name"), "name one of worker.volumes"))
		case !volumes[m.Name]:
			faults = append(faults, field.NotFound(p.Child("name"), m.Name))
		}
		switch {
		case m.MountPath == "":
			faults = append(faults, field.Required(p.Child("mountPath"), "say where the volume goes"))
		case seen[m.MountPath]:
			faults = append(faults, field.Duplicate(p.Child("mountPath"), m.MountPath))
		}
		seen[m.MountPath] = true
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
				"is set by the controller; the configuration has a key for what it does"))
		case seen[e.Name] && e.Name != "":
			faults = append(faults, field.Duplicate(p.Child("name"), e.Name))
		}
		seen[e.Name] = true
		if e.Value != "" && e.ValueFrom != nil {
			faults = append(faults, field.Invalid(p.Child("valueFrom"), "{...}", "cannot be set together with value"))
		}
	}
	return faults
}

func validateResources(p *field.Path, r corev1.ResourceRequirements) field.ErrorList {
	var faults field.ErrorList
	for _, name := range sortedKeys(r.Limits) {
		if q := r.Limits[name]; q.Sign() < 0 {
			faults = append(faults, field.Invalid(p.Child("limits").Key(string(name)), q.String(), "must be at least 0"))
		}
	}
	for _, name := range sortedKeys(r.Requests) {
		at, q := p.Child("requests").Key(string(name)), r.Requests[name]
		if q.Sign() < 0 {
			faults = append(faults, field.Invalid(at, q.String(), "must be at least 0"))
		}
		if limit, ok := r.Limits[name]; ok && q.Cmp(limit) > 0 {
			faults = append(faults, field.Invalid(at, q.String(), "must be at most the limit, which is "+limit.String()))
		}
	}
	return faults
}

func (w *Worker) validateMetadata(p *field.Path) field.ErrorList {
	labels, annotations := p.Child("podLabels"), p.Child("podAnnotations")
	faults := metavalidation.ValidateLabels(w.PodLabels, labels)
	faults = append(faults, apivalidation.ValidateAnnotations(w.PodAnnotations, annotations)...)
	const theirs = "is set by the controller, which tells its pods by it; remove it"
	for _, key := range sortedKeys(w.PodLabels) {
		if slices.Contains(ownLabels, key) || strings.HasPrefix(key, ownPrefix) {
			faults = append(faults, field.Invalid(labels.Key(key), w.PodLabels[key], theirs))
		}
	}
	for _, key := range sortedKeys(w.PodAnnotations) {
		if strings.HasPrefix(key, ownPrefix) {
			faults = append(faults, field.Invalid(annotations.Key(key), w.PodAnnotations[key], theirs))
		}
	}
	return faults
}

// sortedKeys makes the order of faults independent of the map's.
func sortedKeys[K ~string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
