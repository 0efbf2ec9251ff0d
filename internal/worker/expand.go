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
)

// Defaults.
const (
	// DefaultTimeoutSeconds bounds a worker.
	DefaultTimeoutSeconds = 120
	// DefaultCheckTimeoutSeconds bounds one attempt of a check.
	DefaultCheckTimeoutSeconds = checks.DefaultTimeoutSeconds
)

// maxCheckName is the longest name of a check; that of a long domain is cut and hashed.
const maxCheckName = 63

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

// Validate reports what no limit of a single value can. It expects the defaults to be set. path is the place of the worker
// section.
func (c Config) Validate(path *field.Path) field.ErrorList {
	faults := checks.Validate(c.Checks, path.Child("checks"))
	faults = append(faults, c.validateDomains(path)...)
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
	most := c.TimeoutSeconds
	if most < 1 {
		return nil
	}
	text := fmt.Sprintf("must be at most %d, the worker's timeoutSeconds", most)
	if n := c.CheckTimeoutSeconds; n > most && n != DefaultCheckTimeoutSeconds {
		faults = append(faults, field.Invalid(path.Child("checkTimeoutSeconds"), n, text))
	}
	for i, s := range c.Checks {
		if n := ptr.Deref(s.TimeoutSeconds, 0); n > most {
			faults = append(faults, field.Invalid(path.Child("checks").Index(i).Child("timeoutSeconds"), n, text))
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
	if n := len(own) + len(c.DNSTestDomains); len(c.DNSTestDomains) > 0 && n > checks.MaxChecks {
		faults = append(faults, field.Invalid(domains, len(c.DNSTestDomains), fmt.Sprintf("would make %d checks, at most %d are possible", n, checks.MaxChecks)))
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
			faults = append(faults, field.Invalid(domains.Index(i), d, err.Error()))
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

// BuiltIns are the checks of a worker that is given none. One thing wrong with the node makes one
// of those that are required fail: the API is reached by its address, so that broken DNS is found by the check
// of that name alone, and service discovery waits for both that it rests on.
func BuiltIns() []checks.Spec {
	endpoints := dnsCheck("dns-endpoints", dns.Settings{Resolver: dns.ResolverEndpoints, Sample: 3, Protocols: []string{"udp", "tcp"}})
	endpoints.Severity = checks.Advisory // the address in resolv.conf hides which server answers, and a cache on the node whether any does
	return []checks.Spec{
		dnsCheck("dns", dns.Settings{Protocols: []string{"udp", "tcp"}}),
		{Name: "api", Type: "kubernetesAPI", Table: checks.Table{KubernetesAPI: &kubernetesapi.Settings{Via: []string{kubernetesapi.ViaAddress}}}},
		{Name: "network", Type: "tcp"},
		{Name: "service-discovery", Type: "serviceDiscovery", DependsOn: []string{"dns", "api"}},
		endpoints,
		// Skew breaks tokens, certificates and leases, which have minutes of tolerance: 30 s is far from what they
		// tolerate, and from what time synchronisation leaves.
		{Name: "clock", Type: "clock", Severity: checks.Advisory,
			Table: checks.Table{Clock: &clock.Settings{MaxSkewSeconds: new(int32(30))}}},
	}
}

func dnsCheck(name string, settings dns.Settings) checks.Spec {
	return checks.Spec{Name: name, Type: "dns", Table: checks.Table{DNS: &settings}}
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
