package worker

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/clock"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/kubernetesapi"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
)

// Defaults.
const (
	// DefaultTimeoutSeconds limits a worker.
	DefaultTimeoutSeconds = 120
	// DefaultCheckTimeoutSeconds limits one attempt of a check.
	DefaultCheckTimeoutSeconds = checks.DefaultTimeoutSeconds
)

// maxCheckName is the longest name of a check.
const maxCheckName = 63

// SetDefaults sets absent values. It leaves the list of checks to Expand.
func (c *Config) SetDefaults() {
	c.CheckTimeoutSeconds = cmp.Or(c.CheckTimeoutSeconds, DefaultCheckTimeoutSeconds)
	c.TimeoutSeconds = cmp.Or(c.TimeoutSeconds, DefaultTimeoutSeconds)
}

// Validate checks the rules that concern more than one value. The defaults must be set. path is that of the worker
// section.
func (c Config) Validate(path *field.Path) field.ErrorList {
	errs := slices.Concat(
		checks.Validate(c.Checks, path.Child("checks")), c.validateDomains(path), c.validateTimeouts(path))
	if len(errs) == 0 {
		errs = c.validateEnv(path)
	}
	return errs
}

// validateTimeouts reports checks that may take longer than their worker. The default of checkTimeoutSeconds is exempt:
// Expand lowers it.
func (c Config) validateTimeouts(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	most := c.TimeoutSeconds
	if most < 1 {
		return nil
	}
	text := fmt.Sprintf("must be at most %d, the worker's timeoutSeconds", most)
	if n := c.CheckTimeoutSeconds; n > most && n != DefaultCheckTimeoutSeconds {
		errs = append(errs, field.Invalid(path.Child("checkTimeoutSeconds"), n, text))
	}
	for i, s := range c.Checks {
		if n := ptr.Deref(s.TimeoutSeconds, 0); n > most {
			errs = append(errs, field.Invalid(path.Child("checks").Index(i).Child("timeoutSeconds"), n, text))
		}
	}
	return errs
}

// validateDomains validates each name, and the names of the checks that are made of them.
func (c Config) validateDomains(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	domains := path.Child("dnsTestDomains")
	own := c.Checks
	if own == nil {
		own = BuiltIns()
	}
	if n := len(own) + len(c.DNSTestDomains); len(c.DNSTestDomains) > 0 && n > checks.MaxChecks {
		errs = append(errs, field.Invalid(domains, len(c.DNSTestDomains),
			fmt.Sprintf("would make %d checks, at most %d are possible", n, checks.MaxChecks)))
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
		if err := dns.ValidateName(d); err != nil {
			errs = append(errs, field.Invalid(domains.Index(i), d, err.Error()))
			continue
		}
		if slices.Contains(c.DNSTestDomains[:i], d) {
			errs = append(errs, field.Duplicate(domains.Index(i), d))
			continue
		}
		name := domainCheckName(d)
		if other, twice := taken[name]; twice {
			errs = append(errs, field.Invalid(domains.Index(i), d, fmt.Sprintf(
				"its check would have the name %s, which %s already has; rename or remove one", name, other)))
			continue
		}
		taken[name] = domains.Index(i).String()
	}
	return errs
}

// Expand returns all checks to run, with their defaults set: Checks, or the built-ins without a list, and a DNS check
// for each of DNSTestDomains.
func (c Config) Expand() []checks.Spec {
	specs := slices.Clone(c.Checks)
	if specs == nil {
		specs = BuiltIns()
	}
	for _, d := range c.DNSTestDomains {
		specs = append(specs, dnsCheck(domainCheckName(d), dns.Settings{Name: d}))
	}
	timeout := cmp.Or(c.CheckTimeoutSeconds, DefaultCheckTimeoutSeconds)
	if c.TimeoutSeconds > 0 {
		timeout = min(timeout, c.TimeoutSeconds)
	}
	for i := range specs {
		specs[i] = specs[i].WithDefaults(timeout)
	}
	return specs
}

// BuiltIns are the checks of a worker without a list. One fault of the node makes one required check fail: api reaches
// the API server by its address, so that only dns detects broken DNS, and service-discovery depends on both.
func BuiltIns() []checks.Spec {
	protocols := []string{resolver.UDP, resolver.TCP}
	endpoints := dnsCheck("dns-endpoints", dns.Settings{Resolver: dns.ResolverEndpoints, Sample: 3, Protocols: protocols})
	// The address in resolv.conf hides which server answers, and a cache on the node whether any does.
	endpoints.Severity = checks.Advisory
	api := &kubernetesapi.Settings{Via: []string{kubernetesapi.ViaAddress}}
	return []checks.Spec{
		dnsCheck("dns", dns.Settings{Protocols: protocols}),
		{Name: "api", Type: "kubernetesAPI", Table: checks.Table{KubernetesAPI: api}},
		{Name: "network", Type: "tcp"},
		{Name: "service-discovery", Type: "serviceDiscovery", DependsOn: []string{"dns", "api"}},
		endpoints,
		// Skew breaks tokens, certificates and leases. 30 s is far below what they tolerate, which is minutes, and far above
		// what time synchronisation leaves.
		{Name: "clock", Type: "clock", Severity: checks.Advisory,
			Table: checks.Table{Clock: &clock.Settings{MaxSkewSeconds: new(int32(30))}}},
	}
}

func dnsCheck(name string, settings dns.Settings) checks.Spec {
	return checks.Spec{Name: name, Type: "dns", Table: checks.Table{DNS: &settings}}
}

// domainCheckName is the name of a domain's check: dns-<domain>, truncated to fit with a hash that keeps it unique.
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
