package reporter

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// The reporter's environment. The first six and METRICS_BIND_ADDRESS are those of the SIG's
// readiness-condition-reporter.
const (
	EnvNodeName          = "NODE_NAME"
	EnvEndpoint          = "CHECK_ENDPOINT"
	EnvConditionType     = "CONDITION_TYPE"
	EnvInterval          = "CHECK_INTERVAL"
	EnvHeartbeat         = "HEARTBEAT_PERIOD"
	EnvImpersonate       = "IMPERSONATE_NODE"
	EnvMetrics           = "METRICS_BIND_ADDRESS"
	EnvCAFile            = "CHECK_CA_FILE"
	EnvGrace             = "FAILURE_GRACE"
	EnvUnknownOnShutdown = "REPORT_UNKNOWN_ON_SHUTDOWN"
)

// Defaults.
const (
	DefaultInterval  = 30 * time.Second
	DefaultHeartbeat = 5 * time.Minute
	// DefaultGrace covers the moment in which an agent and its reporter stop together: the agent has gone, and the
	// reporter has not received its signal.
	DefaultGrace   = time.Second
	DefaultMetrics = ":9445"
)

// minInterval protects the agent from checks in a tight loop.
const minInterval = 100 * time.Millisecond

// maxConditionType is the longest type that a NodeReadinessRule can name.
const maxConditionType = 316

// reservedTypes are condition types that the kubelet or this project's controller writes.
var reservedTypes = []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "node-ready/Verified"}

// Config is a reporter's configuration.
type Config struct {
	// Node is the name of the node whose condition is written.
	Node     string
	Endpoint *url.URL
	// CAFile holds the PEM certificates that verify an https endpoint; empty for the system's.
	CAFile        string
	ConditionType string
	// Interval between checks.
	Interval time.Duration
	// Heartbeat is the period after which an unchanged condition is written again.
	Heartbeat time.Duration
	// Grace is how long the endpoint must have failed before a True condition becomes False.
	Grace time.Duration
	// Impersonate sends every request to the API server as system:node:<Node>.
	Impersonate bool
	// MetricsAddress serves /metrics and /healthz; "0" for none.
	MetricsAddress string
	// UnknownOnShutdown sets the condition to Unknown at the end.
	UnknownOnShutdown bool
}

// FromEnv reads the configuration. The warnings are about invalid values that the default replaces; the error names
// every variable that is missing or invalid.
func FromEnv(getenv func(string) string) (c Config, warnings []string, err error) {
	var errs []error
	invalid := func(name, format string, a ...any) { errs = append(errs, fmt.Errorf(name+": "+format, a...)) }

	switch c.Node = getenv(EnvNodeName); {
	case c.Node == "":
		invalid(EnvNodeName, "required: set it from the field spec.nodeName")
	case len(validation.IsDNS1123Subdomain(c.Node)) > 0:
		invalid(EnvNodeName, "%q is not a node name: set it from the field spec.nodeName", c.Node)
	}
	if c.Endpoint, err = endpoint(getenv(EnvEndpoint)); err != nil {
		invalid(EnvEndpoint, "%w", err)
	}
	if err := validateConditionType(getenv(EnvConditionType)); err != nil {
		invalid(EnvConditionType, "%w", err)
	}
	c.ConditionType = getenv(EnvConditionType)
	c.CAFile = getenv(EnvCAFile)
	if c.CAFile != "" {
		if _, err := roots(c.CAFile); err != nil {
			invalid(EnvCAFile, "%w", err)
		}
		if c.Endpoint != nil && c.Endpoint.Scheme != "https" {
			invalid(EnvCAFile, "is for an https endpoint: remove it, or change the scheme of %s", EnvEndpoint)
		}
	}

	duration := func(name string, fallback, least time.Duration) time.Duration {
		value := getenv(name)
		if value == "" {
			return fallback
		}
		d, err := time.ParseDuration(value)
		if err != nil || d < least {
			warnings = append(warnings, fmt.Sprintf(
				"%s: %q is not a duration of at least %v, such as 30s or 5m; using the default, %v", name, value, least, fallback))
			return fallback
		}
		return d
	}
	c.Interval = duration(EnvInterval, DefaultInterval, minInterval)
	c.Heartbeat = duration(EnvHeartbeat, DefaultHeartbeat, minInterval)
	c.Grace = duration(EnvGrace, DefaultGrace, 0)

	boolean := func(name string) bool {
		value := getenv(name)
		if value != "" && value != "true" && value != "false" {
			warnings = append(warnings, fmt.Sprintf("%s: %q is neither true nor false; using false", name, value))
		}
		return value == "true"
	}
	c.Impersonate = boolean(EnvImpersonate)
	c.UnknownOnShutdown = boolean(EnvUnknownOnShutdown)
	c.MetricsAddress = cmp.Or(getenv(EnvMetrics), DefaultMetrics)
	return c, warnings, errors.Join(errs...)
}

// endpoint parses CHECK_ENDPOINT.
func endpoint(value string) (*url.URL, error) {
	const fix = "set it to the agent's health endpoint, for example http://localhost:9099/readiness"
	if value == "" {
		return nil, errors.New("required: " + fix)
	}
	u, err := url.Parse(value)
	if err == nil {
		_, err = url.Parse(u.String()) // as it is sent: some hosts can be parsed, but not their URL
	}
	if err != nil {
		return nil, errors.New("is not a URL: " + fix) // the URL is not repeated: it may hold a password
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("the scheme %q is neither http nor https: %s", u.Scheme, fix)
	}
	if u.Hostname() == "" {
		return nil, errors.New("has no host: " + fix)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("the port %s is not between 1 and 65535: %s", port, fix)
		}
	}
	return u, nil
}

// validateConditionType returns why a condition of this type cannot be written.
func validateConditionType(t string) error {
	const fix = "set it to a condition type of the agent, for example projectcalico.org/CalicoReady"
	switch {
	case t == "":
		return errors.New("required: " + fix)
	case len(t) > maxConditionType:
		return fmt.Errorf("has %d characters, but a rule can name only %d: %s", len(t), maxConditionType, fix)
	case slices.Contains(reservedTypes, t):
		return fmt.Errorf("%s is written by another component: %s", t, fix)
	}
	if errs := validation.IsQualifiedName(t); len(errs) > 0 {
		return fmt.Errorf("%q: %s: %s", t, strings.Join(errs, "; "), fix)
	}
	return nil
}
