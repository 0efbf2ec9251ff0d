package config

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// maxSeconds bounds what is given in seconds: a year, so that no sum of such values overflows.
const maxSeconds = 365 * 24 * 3600

// maxQPS is more than an API server can answer, and less than overflows a burst of twice as many.
const maxQPS = 1_000_000

// Validate reports every value that is not allowed. It expects the defaults to be set.
func (c *Config) Validate() field.ErrorList {
	faults := c.Worker.validate(field.NewPath("worker"))
	faults = append(faults, c.Reconciliation.validate(field.NewPath("reconciliation"))...)
	faults = append(faults, c.NodeManagement.validate(field.NewPath("nodeManagement"))...)
	faults = append(faults, c.LeaderElection.validate(field.NewPath("leaderElection"))...)
	faults = append(faults, c.validatePorts()...)
	faults = append(faults, c.Metrics.validate(field.NewPath("metrics"))...)
	faults = append(faults, oneOf(field.NewPath("logging", "level"), c.Logging.Level, "debug", "info", "warn", "error")...)
	faults = append(faults, oneOf(field.NewPath("logging", "format"), c.Logging.Format, "json", "console")...)
	faults = append(faults, c.Kubernetes.validate(field.NewPath("kubernetes"))...)
	faults = append(faults, c.validateProfiles(field.NewPath("profiles"))...)
	faults = append(faults, c.validateUnchecked()...)
	faults = append(faults, c.validateHold()...)
	faults = append(faults, c.Admission.validate(field.NewPath("admission"))...)
	faults = append(faults, c.Rules.validate(field.NewPath("rules"))...)
	return faults
}

func (r *Rules) validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	switch off := r.Enabled != nil && !*r.Enabled; {
	case r.StaleAfter.Duration < 0 || r.StaleAfter.Duration > 0 && r.StaleAfter.Duration < time.Second:
		faults = append(faults, field.Invalid(p.Child("staleAfter"), r.StaleAfter.Duration.String(), "must be at least 1s, or 0s for never"))
	case off && r.StaleAfter.Duration > 0:
		faults = append(faults, field.Invalid(p.Child("staleAfter"), r.StaleAfter.Duration.String(), "has no effect while rules.enabled is false; remove one of the two"))
	}
	if r.TakeOver && r.Enabled != nil && !*r.Enabled {
		faults = append(faults, field.Invalid(p.Child("takeOver"), true, "has no effect while rules.enabled is false; remove one of the two"))
	}
	return faults
}

func (r *Reconciliation) validate(p *field.Path) field.ErrorList {
	faults := inRange(p.Child("maxRetries"), r.MaxRetries, 1, 1000)
	faults = append(faults, oneOf(p.Child("retryBackoff"), r.RetryBackoff, BackoffExponential, BackoffLinear)...)
	faults = append(faults, inRange(p.Child("initialBackoffSeconds"), r.InitialBackoffSeconds, 1, maxSeconds)...)
	faults = append(faults, inRange(p.Child("maxBackoffSeconds"), r.MaxBackoffSeconds, 1, maxSeconds)...)
	if len(faults) == 0 && r.InitialBackoffSeconds > r.MaxBackoffSeconds {
		faults = append(faults, field.Invalid(p.Child("initialBackoffSeconds"), r.InitialBackoffSeconds,
			fmt.Sprintf("must be at most maxBackoffSeconds, which is %d", r.MaxBackoffSeconds)))
	}
	if r.ExhaustedRetrySeconds != -1 && (r.ExhaustedRetrySeconds < 1 || r.ExhaustedRetrySeconds > maxSeconds) {
		faults = append(faults, field.Invalid(p.Child("exhaustedRetrySeconds"), r.ExhaustedRetrySeconds,
			fmt.Sprintf("must be between 1 and %d, or -1 for never", maxSeconds)))
	}
	faults = append(faults, inRange(p.Child("intervalSeconds"), r.IntervalSeconds, 1, maxSeconds)...)
	faults = append(faults, inRange(p.Child("verificationDeadlineSeconds"), r.VerificationDeadlineSeconds, 0, maxSeconds)...)
	return append(faults, inRange(p.Child("maxConcurrentVerifications"), r.MaxConcurrentVerifications, 0, math.MaxInt32)...)
}

// PercentForm is a percentage of nodes, as in maxUnhealthy; the chart's schema has it too.
var PercentForm = regexp.MustCompile(`^(100|[1-9]?[0-9])%$`)

func (r *Remediation) validate(p *field.Path) field.ErrorList {
	faults := validateShare(p.Child("maxUnhealthy"), r.MaxUnhealthy)
	faults = append(faults, validateShare(p.Child("maxUnhealthyPerZone"), r.MaxUnhealthyPerZone)...)
	if r.MaxInFlight != nil {
		faults = append(faults, inRange(p.Child("maxInFlight"), *r.MaxInFlight, 1, math.MaxInt32)...)
	}
	if r.Window.Duration <= 0 {
		faults = append(faults, field.Invalid(p.Child("window"), r.Window.Duration.String(), "must be more than 0s"))
	}
	if r.MaxDeletionsPerHour != nil {
		faults = append(faults, inRange(p.Child("maxDeletionsPerHour"), *r.MaxDeletionsPerHour, 0, math.MaxInt32)...)
	}
	return faults
}

// validateShare faults what is neither a number of nodes nor a percentage of them; nil is no limit.
func validateShare(p *field.Path, m *intstr.IntOrString) field.ErrorList {
	switch {
	case m == nil:
	case m.Type == intstr.String && !PercentForm.MatchString(m.StrVal):
		return field.ErrorList{field.Invalid(p, m.StrVal, `must be a number of nodes, or a percentage from "0%" to "100%"`)}
	case m.Type == intstr.Int && m.IntVal < 0:
		return field.ErrorList{field.Invalid(p, m.IntVal, "must be at least 0")}
	}
	return nil
}

func (l *LeaderElection) validate(p *field.Path) field.ErrorList {
	faults := named(p.Child("id"), l.ID, validation.IsDNS1123Subdomain)
	if l.Namespace != "" {
		faults = append(faults, named(p.Child("namespace"), l.Namespace, validation.IsDNS1123Label)...)
	}
	return faults
}

func (m *Metrics) validate(p *field.Path) field.ErrorList {
	faults := oneOf(p.Child("perNode"), m.PerNode, PerNodeAll, PerNodeUnverified, PerNodeNone)
	switch dir := m.CertificateDir; {
	case dir == "":
	case !m.Secure:
		faults = append(faults, field.Invalid(p.Child("certificateDir"), dir, "has no effect while secure is false; set that to true or remove this"))
	case !filepath.IsAbs(dir):
		faults = append(faults, field.Invalid(p.Child("certificateDir"), dir, "must be an absolute path"))
	}
	return faults
}

func (c *Config) validatePorts() field.ErrorList {
	health := field.NewPath("health", "port")
	faults := inRange(field.NewPath("metrics", "port"), c.Metrics.Port, 1, 65535)
	faults = append(faults, inRange(health, c.Health.Port, 1, 65535)...)
	serves := c.Metrics.Enabled == nil || *c.Metrics.Enabled
	if len(faults) == 0 && serves && c.Metrics.Port == c.Health.Port {
		faults = append(faults, field.Invalid(health, c.Health.Port, "is metrics.port as well; each needs a port of its own"))
	}
	if hook := c.Admission.Webhook.Port; c.Admission.Mode != AdmissionOff && (hook == c.Health.Port || serves && hook == c.Metrics.Port) {
		faults = append(faults, field.Invalid(field.NewPath("admission", "webhook", "port"), hook, "is metrics.port or health.port as well; each needs a port of its own"))
	}
	return append(faults, validatePprof(field.NewPath("health", "pprofBindAddress"), c.Health.PprofBindAddress, c.Metrics.Port, c.Health.Port)...)
}

// validatePprof holds an address to host:port, with a port that serves nothing else.
func validatePprof(p *field.Path, address string, taken ...int32) field.ErrorList {
	if address == "" {
		return nil
	}
	_, given, err := net.SplitHostPort(address)
	port, bad := strconv.ParseInt(given, 10, 32)
	switch {
	case err != nil || bad != nil || port < 1 || port > 65535:
		return field.ErrorList{field.Invalid(p, address, "must be host:port, as 127.0.0.1:6060, or empty for none")}
	case slices.Contains(taken, int32(port)):
		return field.ErrorList{field.Invalid(p, address, "has the port of metrics or health; it needs one of its own")}
	}
	return nil
}

func (k *Kubernetes) validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	if k.QPS < 0 || k.QPS > maxQPS {
		faults = append(faults, field.Invalid(p.Child("qps"), k.QPS, fmt.Sprintf("must be between 0 and %d, where 0 is no limit", maxQPS)))
	}
	faults = append(faults, inRange(p.Child("burst"), k.Burst, 0, math.MaxInt32)...)
	if k.QPS == 0 && k.Burst > 0 {
		faults = append(faults, field.Invalid(p.Child("burst"), k.Burst, "has no effect without qps; set qps or remove it"))
	}
	return faults
}

func (c *Config) validateProfiles(path *field.Path) field.ErrorList {
	var faults field.ErrorList
	names := map[string]bool{}
	for i := range c.Profiles {
		profile, p := &c.Profiles[i], path.Index(i)
		faults = append(faults, named(p.Child("name"), profile.Name, validation.IsDNS1123Label)...)
		if names[profile.Name] && profile.Name != "" {
			faults = append(faults, field.Duplicate(p.Child("name"), profile.Name))
		}
		names[profile.Name] = true
		faults = append(faults, selector(p.Child("nodeSelector"), &profile.NodeSelector,
			"select the profile's nodes; what holds for all nodes belongs in worker and nodeManagement")...)
		faults = append(faults, c.validateProfileChecks(p, profile)...)
		if d := profile.VerificationDeadlineSeconds; d != nil {
			faults = append(faults, inRange(p.Child("verificationDeadlineSeconds"), *d, 0, maxSeconds)...)
		}
		faults = append(faults, validateTaints(p.Child("taints"), profile.Taints)...)
		if profile.Prerequisites != nil {
			faults = append(faults, profile.Prerequisites.validate(p.Child("prerequisites"))...)
		}
		faults = append(faults, validatePresets(p.Child("presets"), profile.Presets)...)
		faults = append(faults, validateTolerations(p.Child("tolerations"), profile.Tolerations)...)
		if profile.Resources != nil {
			faults = append(faults, validateResources(p.Child("resources"), *profile.Resources)...)
		}
	}
	return faults
}

// validateProfileChecks checks a profile's own checks, and then, because it may replace some of
// what a worker is handed and keep the rest, all of it together.
func (c *Config) validateProfileChecks(p *field.Path, profile *Profile) field.ErrorList {
	own := worker.Config{Checks: profile.Checks, DNSTestDomains: profile.DNSTestDomains,
		CheckTimeoutSeconds: worker.DefaultCheckTimeoutSeconds, TimeoutSeconds: cmp.Or(profile.TimeoutSeconds, c.Worker.TimeoutSeconds)}
	faults := own.Validate(p)
	if len(faults) > 0 || len(c.Worker.Validate(p)) > 0 {
		return faults
	}
	e := c.base()
	profile.override(&e)
	own.Checks, own.DNSTestDomains, own.TimeoutSeconds = e.Checks, e.DNSTestDomains, e.TimeoutSeconds
	return own.Validate(p)
}

// named faults a name that is missing or that Kubernetes' rule for its kind refuses.
func named(p *field.Path, name string, rule func(string) []string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	return each(p, name, rule(name))
}

// each is one fault per message of a rule.
func each(p *field.Path, value any, messages []string) field.ErrorList {
	var faults field.ErrorList
	for _, message := range messages {
		faults = append(faults, field.Invalid(p, value, message))
	}
	return faults
}

func oneOf[T ~string](p *field.Path, value T, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(p, value, allowed)}
}

func inRange(p *field.Path, value, low, high int32) field.ErrorList {
	return check.InRange(p, value, low, high)
}

// foreign lists the prefixes of taints that others put back for as long as their reason lasts.
var foreign = []string{"node.kubernetes.io/", "node-role.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/"}

func validateTaints(path *field.Path, taints []marks.Taint) field.ErrorList {
	var faults field.ErrorList
	for i, t := range taints {
		p := path.Index(i)
		faults = append(faults, named(p.Child("key"), t.Key, validation.IsQualifiedName)...)
		for _, prefix := range foreign {
			if strings.HasPrefix(t.Key, prefix) {
				faults = append(faults, field.Invalid(p.Child("key"), t.Key,
					"taints of "+strings.TrimSuffix(prefix, "/")+" belong to Kubernetes or Karpenter, which would put it back; choose a key of your own"))
			}
		}
		faults = append(faults, each(p.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
		if t.Effect == "" {
			faults = append(faults, field.Required(p.Child("effect"), "NoSchedule, PreferNoSchedule or NoExecute"))
		} else {
			faults = append(faults, oneOf(p.Child("effect"), t.Effect,
				corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		}
		for _, before := range taints[:i] {
			if before.Key == t.Key && before.Effect == t.Effect {
				faults = append(faults, field.Duplicate(p, fmt.Sprintf("%s:%s", t.Key, t.Effect)))
			}
		}
	}
	return faults
}
