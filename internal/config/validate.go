package config

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/limits"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
)

// Validate reports settings of different sections that contradict each other. The defaults must be set.
func (c *Config) Validate(*field.Path) field.ErrorList {
	return slices.Concat(c.validatePorts(), c.validateProfiles(field.NewPath("profiles")), c.validateScheduling(),
		c.validateUnchecked(), c.validateSuspects(), c.validateHold(), c.validateLeaving())
}

// Validate reports settings that have no effect.
func (r *Rules) Validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	off := r.Enabled != nil && !*r.Enabled
	ineffective := func(key string, value any, set bool) {
		if off && set {
			const why = "has no effect while rules.enabled is false; remove one of the two"
			faults = append(faults, field.Invalid(p.Child(key), value, why))
		}
	}
	ineffective("staleAfter", r.StaleAfter.Duration.String(), r.StaleAfter.Duration > 0)
	ineffective("maxClosedPercent", r.MaxClosedPercent, r.MaxClosedPercent > 0)
	ineffective("takeOver", true, r.TakeOver)
	return faults
}

// Validate reports backoffs in the wrong order.
func (r *Reconciliation) Validate(p *field.Path) field.ErrorList {
	if r.MaxBackoffSeconds < 1 || r.InitialBackoffSeconds <= r.MaxBackoffSeconds {
		return nil
	}
	return field.ErrorList{field.Invalid(p.Child("initialBackoffSeconds"), r.InitialBackoffSeconds,
		fmt.Sprintf("must be at most maxBackoffSeconds (%d)", r.MaxBackoffSeconds))}
}

// Validate reports a window in which nothing would count.
func (r *Remediation) Validate(p *field.Path) field.ErrorList {
	faults := r.Condition.validate(p.Child("condition", "type"))
	if r.Window.Duration <= 0 {
		faults = append(faults, field.Invalid(p.Child("window"), r.Window.Duration.String(), "must be more than 0s"))
	}
	return faults
}

// Validate reports a certificate that nothing uses.
func (m *Metrics) Validate(p *field.Path) field.ErrorList {
	if m.CertificateDir == "" || m.Secure {
		return nil
	}
	return field.ErrorList{field.Invalid(p.Child("certificateDir"), m.CertificateDir,
		"has no effect while secure is false; set secure to true, or remove this key")}
}

func (c *Config) validatePorts() field.ErrorList {
	var faults field.ErrorList
	health := field.NewPath("health", "port")
	serves := c.Metrics.Enabled == nil || *c.Metrics.Enabled
	if serves && c.Metrics.Port == c.Health.Port {
		faults = append(faults, field.Invalid(health, c.Health.Port, "equals metrics.port; choose another port"))
	}
	hook := c.Admission.Webhook.Port
	if c.Admission.Mode != AdmissionOff && (hook == c.Health.Port || serves && hook == c.Metrics.Port) {
		faults = append(faults, field.Invalid(field.NewPath("admission", "webhook", "port"), hook,
			"equals metrics.port or health.port; choose another port"))
	}
	pprof := field.NewPath("health", "pprofBindAddress")
	return append(faults, validatePprof(pprof, c.Health.PprofBindAddress, c.Metrics.Port, c.Health.Port)...)
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
		return field.ErrorList{field.Invalid(p, address, "must be host:port, for example 127.0.0.1:6060, or empty to turn "+
			"profiling off")}
	case slices.Contains(taken, int32(port)):
		return field.ErrorList{field.Invalid(p, address, "has the port of metrics or health; choose another port")}
	}
	return nil
}

// Validate reports a burst of nothing.
func (k *Kubernetes) Validate(p *field.Path) field.ErrorList {
	if k.QPS != 0 || k.Burst <= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(p.Child("burst"), k.Burst, "has no effect without qps; set qps, or remove "+
		"this key")}
}

func (c *Config) validateProfiles(path *field.Path) field.ErrorList {
	var faults field.ErrorList
	names := map[string]bool{}
	for i := range c.Profiles {
		profile, p := &c.Profiles[i], path.Index(i)
		if again(names, profile.Name) && profile.Name != "" {
			faults = append(faults, field.Duplicate(p.Child("name"), profile.Name))
		}
		faults = slices.Concat(faults, selector(p.Child("nodeSelector"), &profile.NodeSelector),
			c.validateProfileChecks(p, profile), validateTaints(p.Child("taints"), profile.Taints),
			validatePresets(p.Child("presets"), profile.Presets), c.validatePod(p, profile))
	}
	return faults
}

// validateProfileChecks checks a profile's own checks, and then, because it may replace some of
// what a worker is handed and keep the rest, all of it together.
func (c *Config) validateProfileChecks(p *field.Path, profile *Profile) field.ErrorList {
	own := worker.Config{Checks: profile.Checks, DNSTestDomains: profile.DNSTestDomains,
		CheckTimeoutSeconds: worker.DefaultCheckTimeoutSeconds,
		TimeoutSeconds:      cmp.Or(profile.TimeoutSeconds, c.Worker.TimeoutSeconds)}
	faults := own.Validate(p)
	if len(faults)+len(limits.Validate(p, &own))+len(limits.Validate(p, &c.Worker.Config)) > 0 {
		return faults
	}
	e := c.effective(profile)
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

// again reports whether the value was seen before, and notes that it was now.
func again[T comparable](seen map[T]bool, value T) bool {
	before := seen[value]
	seen[value] = true
	return before
}

// foreign lists the prefixes of taints that others add again while their reason lasts.
var foreign = []string{
	"node.kubernetes.io/", "node-role.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/",
}

func validateTaints(path *field.Path, taints []marks.Taint) field.ErrorList {
	var faults field.ErrorList
	for i, t := range taints {
		p := path.Index(i)
		for _, prefix := range foreign {
			if strings.HasPrefix(t.Key, prefix) {
				faults = append(faults, field.Invalid(p.Child("key"), t.Key, "taints of "+strings.TrimSuffix(prefix, "/")+
					" belong to Kubernetes or Karpenter, which would add it again; choose a key of your own"))
			}
		}
		for _, before := range taints[:i] {
			if before.Key == t.Key && before.Effect == t.Effect {
				faults = append(faults, field.Duplicate(p, fmt.Sprintf("%s:%s", t.Key, t.Effect)))
			}
			autoscaler, other := autoscalerOf(t), autoscalerOf(before)
			if autoscaler != "" && other != "" && autoscaler != other {
				faults = append(faults, field.Invalid(p.Child("key"), t.Key, fmt.Sprintf("%s knows this key as a startup taint, "+
					"but not %s. For a node with both, it launches more nodes than are needed. Keep one key, and give the nodes of "+
					"the other autoscaler a profile with its key", autoscaler, before.Key)))
			}
		}
	}
	return faults
}

// autoscalerOf is the autoscaler that takes the taint for a start-up taint by its key alone; empty for none.
func autoscalerOf(t marks.Taint) string {
	switch {
	case strings.HasPrefix(t.Key, marks.RuleTaintPrefix):
		return "Karpenter"
	case strings.HasPrefix(t.Key, marks.RuleAutoscalerPrefix):
		return "Cluster Autoscaler"
	}
	return ""
}
