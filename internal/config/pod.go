package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// InitSeconds limits the time of the init containers; 0 if there are none.
func (e Effective) InitSeconds() int32 {
	if len(e.InitContainers) == 0 {
		return 0
	}
	return cmp.Or(e.initTimeoutSeconds, e.StartTimeoutSeconds)
}

// ExtendedResources lists the resources that the pod's containers request and that a device plugin offers on a node,
// such as nvidia.com/gpu.
func (t PodTemplate) ExtendedResources() []corev1.ResourceName {
	names := map[corev1.ResourceName]bool{}
	add := func(r corev1.ResourceRequirements) {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			for name := range list {
				if strings.Contains(string(name), "/") { // Kubernetes' own have no domain
					names[name] = true
				}
			}
		}
	}
	add(t.Resources)
	for i := range t.InitContainers {
		add(t.InitContainers[i].Resources)
	}
	return slices.Sorted(maps.Keys(names))
}

// AttemptSeconds is the longest that an attempt takes: its pod's start, its init containers and its worker.
func (e Effective) AttemptSeconds() int32 {
	return e.StartTimeoutSeconds + e.InitSeconds() + e.TimeoutSeconds
}

// part is a key of a profile that replaces one of the worker's.
type part struct {
	key string
	set bool // the profile has it
	use func(*Effective)
}

// parts lists what a profile may replace in the worker pod. An empty list or map that is written out replaces too.
func (p *Profile) parts() []part {
	return []part{
		{"image", p.Image != nil, func(e *Effective) { e.Image = p.Image }},
		{"tolerations", len(p.Tolerations) > 0, func(e *Effective) { e.Tolerations = p.Tolerations }},
		{"initContainers", p.InitContainers != nil, func(e *Effective) { e.InitContainers = p.InitContainers }},
		{"volumes", p.Volumes != nil, func(e *Effective) { e.Volumes = p.Volumes }},
		{"volumeMounts", p.VolumeMounts != nil, func(e *Effective) { e.VolumeMounts = p.VolumeMounts }},
		{"env", p.Env != nil, func(e *Effective) { e.Env = p.Env }},
		{"resources", p.Resources != nil, func(e *Effective) { e.Resources = *p.Resources }},
		{"resourceClaims", p.ResourceClaims != nil, func(e *Effective) { e.ResourceClaims = p.ResourceClaims }},
		{"runtimeClassName", p.RuntimeClassName != "", func(e *Effective) { e.RuntimeClassName = p.RuntimeClassName }},
		{"imagePullSecrets", p.ImagePullSecrets != nil, func(e *Effective) { e.ImagePullSecrets = p.ImagePullSecrets }},
		{"podAnnotations", p.PodAnnotations != nil, func(e *Effective) { e.PodAnnotations = p.PodAnnotations }},
		{"podLabels", p.PodLabels != nil, func(e *Effective) { e.PodLabels = p.PodLabels }},
		{"startTimeoutSeconds", p.StartTimeoutSeconds > 0,
			func(e *Effective) { e.StartTimeoutSeconds = p.StartTimeoutSeconds }},
		{"initTimeoutSeconds", p.InitTimeoutSeconds > 0,
			func(e *Effective) { e.initTimeoutSeconds = p.InitTimeoutSeconds }},
	}
}

// validate checks what can go wrong within a worker pod and between its parts. The API server would refuse most of it
// too, but only when the first node waits for its worker. at is the path of a key.
func (t PodTemplate) validate(at func(key string) *field.Path) field.ErrorList {
	claims, faults := validateClaims(at("resourceClaims"), t.ResourceClaims)
	faults = slices.Concat(validateTolerations(at("tolerations"), t.Tolerations), faults, t.validateContainers(at, claims),
		validateResources(at("resources"), t.Resources, claims))
	for i, s := range t.ImagePullSecrets {
		p := at("imagePullSecrets").Index(i).Child("name")
		faults = append(faults, named(p, s.Name, validation.IsDNS1123Subdomain)...)
	}
	return append(faults, t.validateMetadata(at)...)
}

func (t PodTemplate) validateContainers(path func(string) *field.Path, claims map[string]bool) field.ErrorList {
	var faults field.ErrorList
	volumes := map[string]bool{}
	for i, v := range t.Volumes {
		at := path("volumes").Index(i)
		faults = append(faults, named(at.Child("name"), v.Name, validation.IsDNS1123Label)...)
		if again(volumes, v.Name) && v.Name != "" {
			faults = append(faults, field.Duplicate(at.Child("name"), v.Name))
		}
		if set := sources(v.VolumeSource); len(set) > 1 {
			faults = append(faults, field.Invalid(at, strings.Join(set, ", "), "must have exactly one source"))
		}
	}
	faults = append(faults, validateMounts(path("volumeMounts"), t.VolumeMounts, volumes)...)
	faults = append(faults, validateEnv(path("env"), t.Env, ownEnv)...)
	names := map[string]bool{}
	for i := range t.InitContainers {
		c, at := &t.InitContainers[i], path("initContainers").Index(i)
		faults = append(faults, named(at.Child("name"), c.Name, validation.IsDNS1123Label)...)
		switch {
		case c.Name == workerContainer:
			faults = append(faults, field.Invalid(at.Child("name"), c.Name,
				"is the name of the container that runs the checks; choose another name"))
		case again(names, c.Name) && c.Name != "":
			faults = append(faults, field.Duplicate(at.Child("name"), c.Name))
		}
		if strings.TrimSpace(c.Image) == "" {
			faults = append(faults, field.Required(at.Child("image"), "name the container's image"))
		}
		faults = slices.Concat(faults, validateMounts(at.Child("volumeMounts"), c.VolumeMounts, volumes),
			validateEnv(at.Child("env"), c.Env, nil), validateResources(at.Child("resources"), c.Resources, claims))
	}
	return faults
}

// validateClaims also returns the names of the claims, which containers refer to.
func validateClaims(path *field.Path, claims []corev1.PodResourceClaim) (map[string]bool, field.ErrorList) {
	var faults field.ErrorList
	names := map[string]bool{}
	for i, c := range claims {
		p := path.Index(i)
		faults = append(faults, named(p.Child("name"), c.Name, validation.IsDNS1123Label)...)
		if again(names, c.Name) && c.Name != "" {
			faults = append(faults, field.Duplicate(p.Child("name"), c.Name))
		}
		switch claim, template := c.ResourceClaimName, c.ResourceClaimTemplateName; {
		case claim == nil && template == nil:
			faults = append(faults, field.Required(p, "set resourceClaimTemplateName (each pod gets its own claim) or "+
				"resourceClaimName (all pods share one claim)"))
		case claim != nil && template != nil:
			faults = append(faults, field.Invalid(p, c.Name, "has resourceClaimName and resourceClaimTemplateName; remove one"))
		case claim != nil:
			faults = append(faults, named(p.Child("resourceClaimName"), *claim, validation.IsDNS1123Subdomain)...)
		default:
			faults = append(faults, named(p.Child("resourceClaimTemplateName"), *template, validation.IsDNS1123Subdomain)...)
		}
	}
	return names, faults
}

func (t PodTemplate) validateMetadata(at func(string) *field.Path) field.ErrorList {
	labels, annotations := at("podLabels"), at("podAnnotations")
	faults := metavalidation.ValidateLabels(t.PodLabels, labels)
	faults = append(faults, apivalidation.ValidateAnnotations(t.PodAnnotations, annotations)...)
	const theirs = "belongs to the controller, which finds its pods by it; remove it"
	for _, key := range slices.Sorted(maps.Keys(t.PodLabels)) {
		if slices.Contains(ownLabels, key) || strings.HasPrefix(key, ownPrefix) {
			faults = append(faults, field.Invalid(labels.Key(key), t.PodLabels[key], theirs))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.PodAnnotations)) {
		if strings.HasPrefix(key, ownPrefix) {
			faults = append(faults, field.Invalid(annotations.Key(key), t.PodAnnotations[key], theirs))
		}
	}
	return faults
}

// validatePod checks a profile's worker pod: what the profile replaces together with what it keeps. A key that it keeps
// may refer to something that it replaced; what is wrong with the worker's own is reported there.
func (c *Config) validatePod(p *field.Path, profile *Profile) field.ErrorList {
	own := map[string]bool{}
	for _, part := range profile.parts() {
		own[part.key] = part.set
	}
	kept := field.NewPath("worker")
	template := c.effective(profile).PodTemplate
	var faults field.ErrorList
	broken := c.Worker.validate(func(key string) *field.Path { return kept.Child(key) })
	for _, fault := range template.validate(func(key string) *field.Path {
		if own[key] {
			return p.Child(key)
		}
		return kept.Child(key)
	}) {
		switch inherited := strings.HasPrefix(fault.Field, "worker."); {
		case !inherited:
			faults = append(faults, fault)
		case !slices.ContainsFunc(broken, func(b *field.Error) bool { return b.Field == fault.Field }):
			// Only the lists of volumes and of claims are referred to.
			list, names := "volumes", "volume"
			if strings.Contains(fault.Field, ".claims[") {
				list, names = "resourceClaims", "claim"
			}
			const why = "has no %s %q, but %s, which the profile inherits, refers to it; add it, or set that key in the " +
				"profile too"
			faults = append(faults, field.Invalid(p.Child(list), "(not shown)",
				fmt.Sprintf(why, names, fault.BadValue, fault.Field)))
		}
	}
	return faults
}

// validateScheduling reports claims of pods that are to be bound directly: the scheduler alone allocates them.
func (c *Config) validateScheduling() field.ErrorList {
	if c.Worker.Scheduling != SchedulingDirect {
		return nil
	}
	var faults field.ErrorList
	for _, e := range c.Variants() {
		if len(e.ResourceClaims) > 0 {
			where := "worker.resourceClaims"
			if e.Profile != "" {
				where = fmt.Sprintf("profile %q", e.Profile)
			}
			faults = append(faults, field.Invalid(field.NewPath("worker", "scheduling"), c.Worker.Scheduling, fmt.Sprintf(
				"does not work with the resourceClaims of %s: only kube-scheduler allocates claims; remove the key. Pods with "+
					"claims then go through kube-scheduler, and all others are bound directly", where)))
			break
		}
	}
	return faults
}
