package workerconfig

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/check"
)

// Defaults.
const (
	// DefaultTimeoutSeconds bounds a worker.
	DefaultTimeoutSeconds = 120
	// DefaultCheckTimeoutSeconds bounds one attempt of a check.
	DefaultCheckTimeoutSeconds = check.DefaultTimeoutSeconds
)

const (
	maxTimeoutSeconds      = 3600
	maxCheckTimeoutSeconds = 3600
	// maxCheckName is the longest name of a check; that of a long domain is cut and hashed.
	maxCheckName = 63
)

// SetDefaults fills in what is absent. The list of checks stays as it is: Expand knows the
// built-ins.
func (c *Config) SetDefaults() {
	if c.CheckTimeoutSeconds == 0 {
		c.CheckTimeoutSeconds = DefaultCheckTimeoutSeconds
	}
	if c.TimeoutSeconds == 0 {
		c.TimeoutSeconds = DefaultTimeoutSeconds
	}
}

// Validate reports every fault, with or without the defaults filled in. path is the place of
// the worker section.
func (c Config) Validate(path *field.Path) field.ErrorList {
	faults := check.Validate(c.Checks, path.Child("checks"))
	faults = append(faults, c.validateDomains(path)...)
	if n := c.CheckTimeoutSeconds; n < 0 || n > maxCheckTimeoutSeconds {
		faults = append(faults, field.Invalid(path.Child("checkTimeoutSeconds"), n, fmt.Sprintf("must be between 1 and %d", maxCheckTimeoutSeconds)))
	}
	if n := c.TimeoutSeconds; n < 0 || n > maxTimeoutSeconds {
		faults = append(faults, field.Invalid(path.Child("timeoutSeconds"), n, fmt.Sprintf("must be between 1 and %d", maxTimeoutSeconds)))
	}
	faults = append(faults, c.validateTimeouts(path)...)
	if len(faults) == 0 {
		faults = c.validateHandover(path)
	}
	return faults
}

// validateTimeouts faults checks that may take longer than their worker. The default of checks is
// none of the file's and gives way.
func (c Config) validateTimeouts(path *field.Path) field.ErrorList {
	var faults field.ErrorList
	most := cmp.Or(c.TimeoutSeconds, DefaultTimeoutSeconds)
	if most < 0 {
		return nil
	}
	text := fmt.Sprintf("must be at most %d, the worker's timeoutSeconds", most)
	if n := c.CheckTimeoutSeconds; n > most && n <= maxCheckTimeoutSeconds && n != DefaultCheckTimeoutSeconds {
		faults = append(faults, field.Invalid(path.Child("checkTimeoutSeconds"), n, text))
	}
	for i, s := range c.Checks {
		if s.TimeoutSeconds > most && s.TimeoutSeconds <= maxCheckTimeoutSeconds {
			faults = append(faults, field.Invalid(path.Child("checks").Index(i).Child("timeoutSeconds"), s.TimeoutSeconds, text))
		}
	}
	return faults
}

// validateDomains looks at each name, and at those of the checks that are made of them.
func (c Config) validateDomains(path *field.Path) field.ErrorList {
	var faults field.ErrorList
	domains := path.Child("dnsTestDomains")
	own := c.Checks
	if own == nil {
		own = BuiltIns()
	}
	if n := len(own) + len(c.DNSTestDomains); len(c.DNSTestDomains) > 0 && n > check.MaxChecks {
		faults = append(faults, field.Invalid(domains, len(c.DNSTestDomains), fmt.Sprintf("would make %d checks, at most %d are possible", n, check.MaxChecks)))
	}
	taken := map[string]string{}
	for i, s := range c.Checks {
		taken[s.Name] = path.Child("checks").Index(i).String()
	}
	if c.Checks == nil {
		for _, s := range own {
			taken[s.Name] = "a built-in check"
		}
	}
	for i, d := range c.DNSTestDomains {
		if fault := check.AddressOrNameFault(d); fault != "" {
			faults = append(faults, field.Invalid(domains.Index(i), d, fault))
			continue
		}
		if slices.Contains(c.DNSTestDomains[:i], d) {
			faults = append(faults, field.Duplicate(domains.Index(i), d))
			continue
		}
		name := domainCheckName(d)
		if other, twice := taken[name]; twice {
			faults = append(faults, field.Invalid(domains.Index(i), d, fmt.Sprintf(
				"its check would be named %s, as that of %s already is; rename or remove one", name, other)))
			continue
		}
		taken[name] = domains.Index(i).String()
	}
	return faults
}

// Expand is the whole list of checks to run, with the envelope's defaults filled in: Checks,
// or the built-ins where there is no list, and a DNS check for each of DNSTestDomains.
func (c Config) Expand() []check.Spec {
	specs := slices.Clone(c.Checks)
	if specs == nil {
		specs = BuiltIns()
	}
	for _, d := range c.DNSTestDomains {
		specs = append(specs, check.Spec{Name: domainCheckName(d), Type: check.TypeDNS, DNS: &check.DNS{Name: d}})
	}
	for i := range specs {
		s := &specs[i]
		if s.Severity == "" {
			s.Severity = check.Required
		}
		if s.TimeoutSeconds == 0 {
			s.TimeoutSeconds = cmp.Or(c.CheckTimeoutSeconds, DefaultCheckTimeoutSeconds)
			if c.TimeoutSeconds > 0 {
				s.TimeoutSeconds = min(s.TimeoutSeconds, c.TimeoutSeconds)
			}
		}
		if s.Attempts == 0 {
			s.Attempts = check.DefaultAttempts
		}
		if s.IntervalSeconds == 0 {
			s.IntervalSeconds = check.DefaultIntervalSeconds
		}
	}
	return specs
}

// BuiltIns are the checks of a worker that is given none. One fault in the node makes one
// of those that are required fail: the API is reached by its address, so that broken DNS is told by the check
// of that name alone, and service discovery waits for both that it rests on.
func BuiltIns() []check.Spec {
	return []check.Spec{
		{Name: "dns", Type: check.TypeDNS, DNS: &check.DNS{Protocols: []string{"udp", "tcp"}}},
		{Name: "api", Type: check.TypeKubernetesAPI, KubernetesAPI: &check.KubernetesAPI{Via: []string{check.ViaAddress}}},
		{Name: "network", Type: check.TypeTCP},
		{Name: "service-discovery", Type: check.TypeServiceDiscovery, DependsOn: []string{"dns", "api"}},
		// The address in resolv.conf hides which server answers, and a cache on the node whether any does.
		{Name: "dns-endpoints", Type: check.TypeDNS, Severity: check.Advisory,
			DNS: &check.DNS{Resolver: check.ResolverEndpoints, Sample: 3, Protocols: []string{"udp", "tcp"}}},
	}
}

// domainCheckName names the check of a domain: dns-<domain>, cut to fit, with a hash where it
// is cut so that it stays unique.
func domainCheckName(domain string) string {
	name := "dns-" + strings.NewReplacer("_", "-", ":", "-").Replace(strings.TrimSuffix(domain, "."))
	name = strings.TrimRight(name, "-")
	if len(name) <= maxCheckName {
		return name
	}
	sum := sha256.Sum256([]byte(domain))
	suffix := "-" + hex.EncodeToString(sum[:])[:8]
	return strings.TrimRight(name[:maxCheckName-len(suffix)], ".-") + suffix
}
