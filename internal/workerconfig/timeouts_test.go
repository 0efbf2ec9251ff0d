package workerconfig_test

import (
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/workerconfig"
)

// A check that may take longer than its worker never gets its time.
func TestATimeoutAboveTheWorkers(t *testing.T) {
	const check, profile = "checks: [{name: a, type: tcp, timeoutSeconds: 60}]", "profiles: [{name: gpu, nodeSelector: {matchLabels: {a: b}}, "
	for _, c := range []struct{ name, yaml, says string }{
		{"a check", "worker: {timeoutSeconds: 30, " + check + "}", "worker.checks[0].timeoutSeconds: Invalid value: 60: must be at most 30, the worker's timeoutSeconds"},
		{"a check, of the default", "worker: {checks: [{name: a, type: tcp, timeoutSeconds: 121}]}", "must be at most 120"},
		{"all checks", "worker: {checkTimeoutSeconds: 31, timeoutSeconds: 30}", "worker.checkTimeoutSeconds: Invalid value: 31: must be at most 30"},
		{"as much", "worker: {timeoutSeconds: 60, checkTimeoutSeconds: 60, " + check + "}", ""},
		{"the default of checks gives way", "worker: {timeoutSeconds: 5}", ""},
		{"a profile's worker", "worker: {" + check + "}\n" + profile + "timeoutSeconds: 30}]", "profiles[0]"},
		{"a profile's check", profile + "timeoutSeconds: 30, " + check + "}]", "profiles[0].checks[0].timeoutSeconds: Invalid value: 60: must be at most 30"},
		{"a profile's check, under its worker's", "worker: {timeoutSeconds: 30}\n" + profile + check + "}]", "must be at most 30"},
		{"a profile with more time", "worker: {timeoutSeconds: 600}\n" + profile + "checks: [{name: a, type: tcp, timeoutSeconds: 500}]}]", ""},
		{"a profile with less time, and checks without", "worker: {checkTimeoutSeconds: 20, timeoutSeconds: 30}\n" + profile + "timeoutSeconds: 5}]", ""},
	} {
		parsed, err := config.Parse([]byte(c.yaml), "config.yaml")
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: the controller says %v", c.name, err)
		}
		if !strings.Contains(c.yaml, "profiles") {
			_, err = workerconfig.Load([]byte(c.yaml), "config.yaml")
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: the worker says %v", c.name, err)
			}
		}
		if parsed == nil {
			continue
		}
		for _, e := range parsed.Variants() { // as a pod is built
			got := handed(t, workerconfig.Config{Checks: e.Checks, DNSTestDomains: e.DNSTestDomains,
				CheckTimeoutSeconds: parsed.Worker.CheckTimeoutSeconds, TimeoutSeconds: e.TimeoutSeconds})
			for _, s := range got.Expand() {
				if s.TimeoutSeconds > e.TimeoutSeconds {
					t.Errorf("%s: %s has %d of %d seconds", c.name, s.Name, s.TimeoutSeconds, e.TimeoutSeconds)
				}
			}
		}
	}
}
