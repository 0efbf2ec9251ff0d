package worker_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/limits"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/exec"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/http"
)

// handed is what a worker reads of the configuration that it is handed.
func handed(t *testing.T, c worker.Config) worker.Config {
	t.Helper()
	env, err := c.Env()
	if err != nil {
		t.Fatal(err)
	}
	if size := len(worker.EnvVar) + 1 + len(env) + 1; size > 128<<10 {
		t.Fatalf("%d bytes do not fit an environment variable", size)
	}
	got, err := worker.Load([]byte(env), worker.EnvVar)
	if err != nil {
		t.Fatalf("the worker refuses %q: %v", env, err)
	}
	return got
}

// What YAML can only write as an escape, JSON may leave as it is.
func TestEveryCharacterIsHandedOver(t *testing.T) {
	var all strings.Builder
	for r := rune(1); r < 0x3000; r++ {
		all.WriteRune(r)
	}
	for _, r := range []rune{0xD7FF, 0xE000, 0xFEFF, 0xFFFD, 0xFFFE, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF} {
		all.WriteRune(r)
	}
	c := worker.Config{TimeoutSeconds: 10, CheckTimeoutSeconds: 5, Checks: []checks.Spec{
		{Name: "a", Type: "exec", Table: checks.Table{Exec: &exec.Settings{Command: []string{"echo", all.String()}}}},
		{Name: "b", Type: "http", Table: checks.Table{HTTP: &http.Settings{URL: "http://h/", Body: all.String()}}},
	}}
	if faults := limits.Validate(field.NewPath("worker"), &c); len(faults) > 0 {
		t.Fatal(faults)
	}
	if got := handed(t, c); !reflect.DeepEqual(got, c) {
		t.Error("the worker reads something else")
	}
	// And from the controller's file, where YAML's escapes are how it gets in.
	parsed, err := config.Parse([]byte(`worker: {checks: [{name: a, type: exec, exec: {command: [echo, "del \x7f nel \N ls \L bom \uFEFF c1 \x9b"]}}]}`), "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := handed(t, parsed.Worker.Config).Checks[0].Exec.Command[1]; got != "del \x7f nel \u0085 ls \u2028 bom \ufeff c1 \u009b" {
		t.Errorf("got %q", got)
	}
}

// What the controller accepts, every worker accepts: a pod's variable holds 128 KiB.
func TestTooLargeToBeHandedOver(t *testing.T) {
	const yaml = `%s: {%schecks: [{name: a, type: http, http: {url: "http://h/", body: "%s"}}]}`
	for size, fits := range map[int]bool{130_000: true, 131_072: false, 500_000: false} {
		body := strings.Repeat("x", size)
		_, err := worker.Load(fmt.Appendf(nil, yaml, "worker", "", body), "file")
		parsed, controllers := config.Parse(fmt.Appendf(nil, yaml, "worker", "", body), "file")
		for who, err := range map[string]error{"worker": err, "controller": controllers} {
			if fits != (err == nil) || err != nil && (!strings.Contains(err.Error(), "at most") || len(err.Error()) > 400) {
				t.Errorf("%s, %d bytes: %.400v", who, size, err)
			}
		}
		if parsed != nil {
			handed(t, parsed.Worker.Config)
		}
		profile := fmt.Appendf(nil, "profiles:\n  - name: gpu\n    nodeSelector: {matchLabels: {a: b}}\n    checks: [{name: a, type: http, http: {url: \"http://h/\", body: \"%s\"}}]\n", body)
		if _, err := config.Parse(profile, "file"); fits != (err == nil) {
			t.Errorf("profile, %d bytes: %.400v", size, err)
		}
	}
	// A header's name this long is no simple key of YAML, and so cannot be handed over; what is refused is refused here.
	long := worker.Config{Checks: []checks.Spec{{Name: "a", Type: "http", Table: checks.Table{HTTP: &http.Settings{URL: "http://h/", Headers: map[string]string{strings.Repeat("x", 2000): "v"}}}}}}
	long.SetDefaults()
	if faults := limits.Validate(field.NewPath("worker"), &long); len(faults) == 0 {
		if got := handed(t, long); !reflect.DeepEqual(got.Checks, long.Checks) {
			t.Error("accepted, and read otherwise")
		}
	}
}

// A check that may take longer than its worker never gets its time.
func TestATimeoutAboveTheWorkers(t *testing.T) {
	const one, profile = "checks: [{name: a, type: tcp, timeoutSeconds: 60}]", "profiles: [{name: gpu, nodeSelector: {matchLabels: {a: b}}, "
	for _, c := range []struct{ name, yaml, says string }{
		{"a check", "worker: {timeoutSeconds: 30, " + one + "}", "worker.checks[0].timeoutSeconds: Invalid value: 60: must be at most 30, the worker's timeoutSeconds"},
		{"a check, of the default", "worker: {checks: [{name: a, type: tcp, timeoutSeconds: 121}]}", "must be at most 120"},
		{"all checks", "worker: {checkTimeoutSeconds: 31, timeoutSeconds: 30}", "worker.checkTimeoutSeconds: Invalid value: 31: must be at most 30"},
		{"as much", "worker: {timeoutSeconds: 60, checkTimeoutSeconds: 60, " + one + "}", ""},
		{"the default of checks gives way", "worker: {timeoutSeconds: 5}", ""},
		{"a profile's worker", "worker: {" + one + "}\n" + profile + "timeoutSeconds: 30}]", "profiles[0]"},
		{"a profile's check", profile + "timeoutSeconds: 30, " + one + "}]", "profiles[0].checks[0].timeoutSeconds: Invalid value: 60: must be at most 30"},
		{"a profile's check, under its worker's", "worker: {timeoutSeconds: 30}\n" + profile + one + "}]", "must be at most 30"},
		{"a profile with more time", "worker: {timeoutSeconds: 600}\n" + profile + "checks: [{name: a, type: tcp, timeoutSeconds: 500}]}]", ""},
		{"a profile with less time, and checks without", "worker: {checkTimeoutSeconds: 20, timeoutSeconds: 30}\n" + profile + "timeoutSeconds: 5}]", ""},
	} {
		parsed, err := config.Parse([]byte(c.yaml), "config.yaml")
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: the controller says %v", c.name, err)
		}
		if !strings.Contains(c.yaml, "profiles") {
			_, err = worker.Load([]byte(c.yaml), "config.yaml")
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: the worker says %v", c.name, err)
			}
		}
		if parsed == nil {
			continue
		}
		for _, e := range parsed.Variants() { // as a pod is built
			got := handed(t, worker.Config{Checks: e.Checks, DNSTestDomains: e.DNSTestDomains,
				CheckTimeoutSeconds: parsed.Worker.CheckTimeoutSeconds, TimeoutSeconds: e.TimeoutSeconds})
			for _, s := range got.Expand() {
				if *s.TimeoutSeconds > e.TimeoutSeconds {
					t.Errorf("%s: %s has %d of %d seconds", c.name, s.Name, *s.TimeoutSeconds, e.TimeoutSeconds)
				}
			}
		}
	}
}
