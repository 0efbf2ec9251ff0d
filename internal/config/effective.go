package config

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
)

// Effective is the settings of one node, with its profile applied. Its slices and maps belong to the configuration and
// must not be modified.
type Effective struct {
	// Profile is the profile's name; empty for a node that no profile selects.
	Profile string
	// Checks and DNSTestDomains are the worker's; nil Checks are the built-in ones.
	Checks         []checks.Spec
	DNSTestDomains []string
	// TimeoutSeconds bounds the worker.
	TimeoutSeconds int32
	// VerificationDeadlineSeconds limits how long the node may take to pass; 0 is no limit.
	VerificationDeadlineSeconds int32
	// Taints gate the node.
	Taints []marks.Taint
	// Prerequisites must hold before its first worker starts.
	Prerequisites Prerequisites
	// PodTemplate is the worker pod's, and Image its image; nil means the worker's.
	PodTemplate
	Image *Image
	// StartTimeoutSeconds limits the start of a pod, without its init containers. initTimeoutSeconds limits those; 0 means
	// StartTimeoutSeconds. See InitSeconds.
	StartTimeoutSeconds int32
	initTimeoutSeconds  int32
	// Scheduling is how the worker pod reaches a node with a gating taint. A pod with claims always goes through
	// kube-scheduler.
	Scheduling Scheduling
	// SuspectConditions verify a verified node again.
	SuspectConditions []SuspectCondition
}

// Unchecked reports whether the node is released without a worker: its list of checks is written out and empty, and
// nothing adds to it.
func (e Effective) Unchecked() bool {
	return e.Checks != nil && len(e.Checks) == 0 && len(e.DNSTestDomains) == 0
}

// For returns the settings of a node with these labels: those of the first profile that selects it, or else the file's
// own.
func (c *Config) For(nodeLabels map[string]string) Effective {
	for i := range c.Profiles {
		p := &c.Profiles[i]
		if matches(p.selector, &p.NodeSelector, nodeLabels) {
			return c.effective(p)
		}
	}
	return c.base()
}

// Choice identifies a profile by its name, which may be empty, and the profiles that it was chosen from by their names
// and selectors. It is empty if there are no profiles.
func (c *Config) Choice(profile string) string {
	if len(c.Profiles) == 0 {
		return ""
	}
	h := fnv.New64a()
	for i := range c.Profiles {
		_, _ = fmt.Fprintf(h, "%s/%s/", c.Profiles[i].Name, metav1.FormatLabelSelector(&c.Profiles[i].NodeSelector))
	}
	_, _ = fmt.Fprintf(h, "/%s", profile)
	return strconv.FormatUint(h.Sum64(), 36)
}

// Chosen returns the name of the profile that a Choice identifies. It reports false for one of other profiles, which is
// of another configuration.
func (c *Config) Chosen(choice string) (profile string, ok bool) {
	if choice == "" || choice == c.Choice("") {
		return "", choice != ""
	}
	for i := range c.Profiles {
		if choice == c.Choice(c.Profiles[i].Name) {
			return c.Profiles[i].Name, true
		}
	}
	return "", false
}

// effective is what holds for a node of the profile.
func (c *Config) effective(p *Profile) Effective {
	e := c.base()
	e.Profile = p.Name
	if p.Checks != nil {
		e.Checks = p.Checks
	}
	if len(p.DNSTestDomains) > 0 {
		e.DNSTestDomains = p.DNSTestDomains
	}
	if p.TimeoutSeconds > 0 {
		e.TimeoutSeconds = p.TimeoutSeconds
	}
	if p.VerificationDeadlineSeconds != nil {
		e.VerificationDeadlineSeconds = *p.VerificationDeadlineSeconds
	}
	if len(p.Taints) > 0 {
		e.Taints = p.Taints
	}
	if p.Prerequisites != nil {
		e.Prerequisites = *p.Prerequisites
	}
	for _, part := range p.parts() {
		if part.set {
			part.use(&e)
		}
	}
	if p.Reverify != nil {
		e.SuspectConditions = p.Reverify.OnConditions
	}
	return e
}

// base is what holds for a node that no profile selects.
func (c *Config) base() Effective {
	return Effective{
		Checks:         c.Worker.Checks,
		DNSTestDomains: c.Worker.DNSTestDomains,
		TimeoutSeconds: c.Worker.TimeoutSeconds,

		VerificationDeadlineSeconds: c.Reconciliation.VerificationDeadlineSeconds,

		Taints:        c.NodeManagement.Taints,
		Prerequisites: c.NodeManagement.Prerequisites,
		PodTemplate:   c.Worker.PodTemplate,
		Scheduling:    cmp.Or(c.Worker.Scheduling, SchedulingDirect),

		StartTimeoutSeconds: c.Worker.StartTimeoutSeconds,
		initTimeoutSeconds:  c.Worker.InitTimeoutSeconds,

		SuspectConditions: c.NodeManagement.Reverify.OnConditions,
	}
}

// Interval is IntervalSeconds as a duration.
func (r Reconciliation) Interval() time.Duration {
	return time.Duration(r.IntervalSeconds) * time.Second
}

// Variants lists everything that For can return: the file's own settings, then each profile's.
func (c *Config) Variants() []Effective {
	all := []Effective{c.base()}
	for i := range c.Profiles {
		all = append(all, c.effective(&c.Profiles[i]))
	}
	return all
}

// Selects reports whether nodeManagement.nodeSelector matches a node with these labels.
func (c *Config) Selects(nodeLabels map[string]string) bool {
	n := &c.NodeManagement
	return n.NodeSelector == nil || matches(n.selector, n.NodeSelector, nodeLabels)
}

// GatingTaints lists the taints that gate any node, in the file's order, one for each key and effect: those of
// nodeManagement and of every profile. A NoExecute taint also gates with effect NoSchedule, because a node that runs
// ordinary pods gets it with that effect.
func (c *Config) GatingTaints() []marks.Taint {
	var all []marks.Taint
	seen := map[marks.TaintID]bool{}
	add := func(taints []marks.Taint) {
		for _, t := range marks.WithFallbacks(taints) {
			if !again(seen, t.ID()) {
				all = append(all, t)
			}
		}
	}
	add(c.NodeManagement.Taints)
	for i := range c.Profiles {
		add(c.Profiles[i].Taints)
	}
	return all
}

// Vocabulary is the configured part of the marks on nodes.
func (c *Config) Vocabulary() marks.Vocabulary {
	if c.vocabulary.Gating != nil {
		return c.vocabulary
	}
	n := &c.NodeManagement // of a Config that Parse has not compiled, or that was made by hand
	return marks.Vocabulary{Gating: c.GatingTaints(), Verified: n.VerifiedLabel, Completed: n.CompletedAnnotation,
		Leaving: n.LeavingTaints}
}

// Reference is the image to run: by digest if there is one, or else by tag, which defaults to version. The "+" before a
// version's build metadata, which is invalid in a tag, becomes "-".
func (i Image) Reference(version string) string {
	switch {
	case i.Digest != "":
		return i.Repository + "@" + i.Digest
	case i.Tag != "":
		return i.Repository + ":" + i.Tag
	}
	return i.Repository + ":" + asTag(version)
}

// maxTagLength is the distribution specification's
// (https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests).
const maxTagLength = 128

// notInTag is what a tag cannot have.
var notInTag = regexp.MustCompile(`[^a-zA-Z0-9_.-]`)

func asTag(version string) string {
	tag := strings.TrimLeft(notInTag.ReplaceAllString(version, "-"), ".-")
	return cmp.Or(tag[:min(len(tag), maxTagLength)], "latest")
}

// SuspectTypes are the types of the conditions that make any node suspect.
func (c *Config) SuspectTypes() map[corev1.NodeConditionType]bool {
	types := map[corev1.NodeConditionType]bool{}
	for _, e := range c.Variants() {
		for _, s := range e.SuspectConditions {
			types[s.Type] = true
		}
	}
	return types
}

// WithoutDeadlines removes verificationDeadlineSeconds, also from the profiles.
func (c *Config) WithoutDeadlines() {
	c.Reconciliation.VerificationDeadlineSeconds = 0
	for i := range c.Profiles {
		c.Profiles[i].VerificationDeadlineSeconds = nil
	}
}

// compile prepares the selectors and the vocabulary, so that For, Selects and Vocabulary do not make them for every
// node.
func (c *Config) compile() {
	c.vocabulary = c.Vocabulary()
	if n := &c.NodeManagement; n.NodeSelector != nil {
		n.selector = selectorOf(n.NodeSelector)
	}
	for i := range c.Profiles {
		c.Profiles[i].selector = selectorOf(&c.Profiles[i].NodeSelector)
	}
}

func matches(compiled labels.Selector, source *metav1.LabelSelector, set map[string]string) bool {
	if compiled == nil { // a Config made by hand
		compiled = selectorOf(source)
	}
	return compiled.Matches(labels.Set(set))
}

// selectorOf is what source selects; nothing if it is not valid, which Validate reports.
func selectorOf(source *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(source)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}
