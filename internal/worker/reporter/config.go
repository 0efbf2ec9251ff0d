package reporter

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// The reporter's environment. The first six and METRICS_BIND_ADDRESS are those of the SIG's readiness-condition-reporter.
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

// Defaults of what may be left out.
const (
	DefaultInterval  = 30 * time.Second
	DefaultHeartbeat = 5 * time.Minute
	// DefaultGrace covers the moment in which an agent and its reporter are told to stop together: the agent is gone, and the
	// reporter has not yet heard of it.
	DefaultGrace   = time.Second
	DefaultMetrics = ":9445"
)

// shortest is the least interval: checks in a tight loop would harm the agent that they are about.
const shortest = 100 * time.Millisecond

// maxConditionType is the longest type that a NodeReadinessRule can name.
const maxConditionType = 316

// taken are condition types that others write, who would be fought over them: the kubelet, and the controller of this project.
var taken = []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "node-ready/Verified"}

// Config is what a reporter is told.
type Config struct {
	// Node is the name of the node whose condition is written.
	Node string
	// Endpoint is asked by GET.
	Endpoint *url.URL
	// CAFile holds the PEM certificates that an https endpoint is verified by; empty for the system's.
	CAFile string
	// ConditionType is the type of the condition.
	ConditionType string
	// Interval is the time from one check to the next.
	Interval time.Duration
	// Heartbeat is how long a condition that does not change is left unwritten.
	Heartbeat time.Duration
	// Grace is how long the endpoint must have failed before a True condition turns False.
	Grace time.Duration
	// Impersonate makes every request to the API server as system:node:<Node>.
	Impersonate bool
	// MetricsAddress serves /metrics and /healthz; "0" for none.
	MetricsAddress string
	// UnknownOnShutdown writes Unknown at the end.
	UnknownOnShutdown bool
}

// FromEnv reads the configuration. Warnings are about values that were passed over for the default; the error names every
// variable without which, or with whose value, there is nothing to report.
func FromEnv(getenv func(string) string) (c Config, warnings []string, err error) {
	var faults []error
	fault := func(name, format string, a ...any) { faults = append(faults, fmt.Errorf(name+": "+format, a...)) }

	switch c.Node = getenv(EnvNodeName); {
	case c.Node == "":
		fault(EnvNodeName, "required: set it from the field spec.nodeName")
	case len(validation.IsDNS1123Subdomain(c.Node)) > 0:
		fault(EnvNodeName, "%q is no node's name: set it from the field spec.nodeName", c.Node)
	}
	if c.Endpoint, err = endpoint(getenv(EnvEndpoint)); err != nil {
		fault(EnvEndpoint, "%w", err)
	}
	if err := conditionType(getenv(EnvConditionType)); err != nil {
		fault(EnvConditionType, "%w", err)
	}
	c.ConditionType = getenv(EnvConditionType)
	c.CAFile = getenv(EnvCAFile)
	if c.CAFile != "" {
		if _, err := roots(c.CAFile); err != nil {
			fault(EnvCAFile, "%w", err)
		}
		if c.Endpoint != nil && c.Endpoint.Scheme != "https" {
			fault(EnvCAFile, "is for an https endpoint: remove it, or change the scheme of %s", EnvEndpoint)
		}
	}

	duration := func(name string, fallback, least time.Duration) time.Duration {
		value := getenv(name)
		if value == "" {
			return fallback
		}
		d, err := time.ParseDuration(value)
		if err != nil || d < least {
			warnings = append(warnings, fmt.Sprintf("%s: %q is no duration of %v or more, as 30s or 5m; the default, %v, is used", name, value, least, fallback))
			return fallback
		}
		return d
	}
	c.Interval = duration(EnvInterval, DefaultInterval, shortest)
	c.Heartbeat = duration(EnvHeartbeat, DefaultHeartbeat, shortest)
	c.Grace = duration(EnvGrace, DefaultGrace, 0)

	boolean := func(name string) bool {
		value := getenv(name)
		if value != "" && value != "true" && value != "false" {
			warnings = append(warnings, fmt.Sprintf("%s: %q is neither true nor false; false is used", name, value))
		}
		return value == "true"
	}
	c.Impersonate = boolean(EnvImpersonate)
	c.UnknownOnShutdown = boolean(EnvUnknownOnShutdown)
	if c.MetricsAddress = getenv(EnvMetrics); c.MetricsAddress == "" {
		c.MetricsAddress = DefaultMetrics
	}
	return c, warnings, errors.Join(faults...)
}

// endpoint is the URL of a value of CHECK_ENDPOINT.
func endpoint(value string) (*url.URL, error) {
	const fix = "set it to the agent's health endpoint, as http://localhost:9099/readiness"
	if value == "" {
		return nil, errors.New("required: " + fix)
	}
	u, err := url.Parse(value)
	if err == nil {
		_, err = url.Parse(u.String()) // as it is asked: some hosts can be read and not be written
	}
	if err != nil {
		return nil, errors.New("is no URL: " + fix) // the URL is not repeated: it may hold a password
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

// conditionType returns why a condition of this type cannot be written.
func conditionType(t string) error {
	const fix = "set it to a type of the agent's own, as projectcalico.org/CalicoReady"
	switch {
	case t == "":
		return errors.New("required: " + fix)
	case len(t) > maxConditionType:
		return fmt.Errorf("has %d characters, more than the %d that a rule can name: %s", len(t), maxConditionType, fix)
	case slices.Contains(taken, t):
		return fmt.Errorf("%s is written by another component: %s", t, fix)
	}
	if faults := validation.IsQualifiedName(t); len(faults) > 0 {
		return fmt.Errorf("%q: %s: %s", t, strings.Join(faults, "; "), fix)
	}
	return nil
}
