// Package worker is one verification of a node: from the configuration and the environment of a pod
// to a report.
//
// The controller reads the configuration as part of the "worker" section of its own file and hands
// it to each worker pod in an environment variable, so a worker never waits for a volume.
package worker

import (
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
)

// EnvVar holds a worker's configuration, in the same form as a file given with --config.
const EnvVar = "KUBE_NODE_READY_CONFIG"

// Config is the part of the "worker" section that a worker process reads.
type Config struct {
	// Checks replaces the default list (the built-ins: DNS, API, network, service discovery, and as warnings three of
	// the DNS endpoints and the clock). An empty list, written out, is none: a node is then released once its
	// prerequisites hold, without a worker, and there must be some.
	Checks []checks.Spec `json:"checks,omitzero"`
	// DNSTestDomains adds a DNS check of each name to whatever the list is. An IP address among
	// them is its own answer.
	DNSTestDomains []string `json:"dnsTestDomains,omitempty"`
	// CheckTimeoutSeconds bounds one attempt of a check that sets no timeout itself; at most
	// timeoutSeconds. Default 10.
	CheckTimeoutSeconds int32 `json:"checkTimeoutSeconds,omitempty" minimum:"1" maximum:"3600"`
	// TimeoutSeconds bounds a worker from its container's start to its exit. Default 120.
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty" minimum:"1" maximum:"3600"`
}
