package workerconfig_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/check"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/workerconfig"
)

func names(specs []check.Spec) string {
	var n []string
	for _, s := range specs {
		n = append(n, s.Name)
	}
	return strings.Join(n, " ")
}

func TestLoad(t *testing.T) {
	for _, c := range []struct{ name, yaml, checks string }{
		{"nothing", "", "dns api network service-discovery dns-endpoints"},
		{"an empty section", "worker:\n", "dns api network service-discovery dns-endpoints"},
		{"domains", "worker: {dnsTestDomains: [example.com, registry.example.com.]}", "dns api network service-discovery dns-endpoints dns-example.com dns-registry.example.com"},
		{"checks", "worker: {checks: [{name: a, type: tcp}]}", "a"},
		{"none", "worker: {checks: []}", ""},
		{"null is no list", "worker: {checks: }", "dns api network service-discovery dns-endpoints"},
		{"none but a domain", "worker: {checks: [], dnsTestDomains: [example.com]}", "dns-example.com"},
		{"checks and domains", "worker: {checks: [{name: a, type: tcp}], dnsTestDomains: [example.com]}", "a dns-example.com"},
		{"JSON", `{"worker":{"checks":[{"name":"a","type":"tcp"}]}}`, "a"},
		{"the controller's whole file", `
worker:
  image: {repository: r}
  namespace: n
  tolerations: [{key: a}]
  resources: {limits: {cpu: 1}}
  dnsTestDomains: [example.com]
reconciliation: {maxRetries: 1}
nodeManagement: {taints: []}
profiles: [{name: gpu}]
`, "dns api network service-discovery dns-endpoints dns-example.com"},
	} {
		config, err := workerconfig.Load([]byte(c.yaml), "config.yaml")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := names(config.Expand()); got != c.checks {
			t.Errorf("%s: got %s, want %s", c.name, got, c.checks)
		}
		if config.TimeoutSeconds != 120 || config.CheckTimeoutSeconds != 10 {
			t.Errorf("%s: got %+v", c.name, config)
		}
	}
}

func TestLoadNamesEveryFaultAndItsLine(t *testing.T) {
	_, err := workerconfig.Load([]byte(`worker:
  timeoutSeconds: -1
  dnsTestDomains:
    - a..b
    - example.com
    - example.com
    - example.com.
  checks:
    - name: a
      type: dns
      timeout: 5
    - name: a
      type: tcp
      tcp:
        addresses: [nowhere]
      dependsOn: [missing]
    - name: dns-example.com
      type: dns
      attempts: many
unknown: true
`), "config.yaml")
	if err == nil {
		t.Fatal("no fault was found")
	}
	want := []string{
		"config.yaml:2: worker.timeoutSeconds: ",
		"config.yaml:4: worker.dnsTestDomains[0]: ",
		"config.yaml:5: worker.dnsTestDomains[1]: Invalid value: \"example.com\": its check would be named dns-example.com",
		"config.yaml:6: worker.dnsTestDomains[2]: Duplicate value",
		"config.yaml:7: worker.dnsTestDomains[3]: Invalid value: \"example.com.\": its check would be named dns-example.com",
		"config.yaml:11: worker.checks[0].timeout: unknown key",
		"config.yaml:12: worker.checks[1].name: Duplicate value",
		"config.yaml:15: worker.checks[1].tcp.addresses[0]: ",
		"config.yaml:16: worker.checks[1].dependsOn[0]: ",
		"config.yaml:19: worker.checks[2].attempts: must be a whole number",
		"config.yaml:20: unknown: unknown key",
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Errorf("got %d faults, want %d:\n%v", len(lines), len(want), err)
	}
	for i := range min(len(lines), len(want)) {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("got %s\nwant %s", lines[i], want[i])
		}
	}
}

func TestAnExplicitZeroIsNoDefault(t *testing.T) {
	_, err := workerconfig.Load([]byte(`worker:
  timeoutSeconds: 0
  checkTimeoutSeconds: 0
  checks:
    - {name: a, type: dns, attempts: 0, timeoutSeconds: 0, intervalSeconds: 0}
    - {name: b, type: peers, peers: {selector: a=b, port: 1, sample: 0, failPercent: 0, minPeers: 0}}
    - {name: c, type: mtu, mtu: {payloadBytes: 0}}
    - {name: d, type: clock, clock: {maxSkewSeconds: 0}}
    - {name: e, type: exec, exec: {command: ["true"], maxOutputBytes: 0}}
    - {name: f, type: dns, dns: {minAnswers: 0}}
`), "file")
	if err == nil || strings.Count(err.Error(), "must be at least 1; leave it out for the default") != 10 || strings.Count(err.Error(), "\n") != 9 {
		t.Errorf("got %v", err)
	}
}

// TestEnv: what the controller hands to a worker is what the worker reads.
func TestEnv(t *testing.T) {
	before, err := workerconfig.Load([]byte(`worker: {checks: [{name: a, type: http, severity: warning, http: {url: "https://h/?a=1&b=<2>", headers: {A: "b: c #d"}}}], timeoutSeconds: 30}`), "file")
	if err != nil {
		t.Fatal(err)
	}
	env, err := before.Env()
	if err != nil {
		t.Fatal(err)
	}
	after, err := workerconfig.Load([]byte(env), workerconfig.EnvVar)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, after) {
		t.Errorf("%+v became %+v through %s", before, after, env)
	}
	zero, err := workerconfig.Config{}.Env()
	if err != nil || zero != `{"worker":{}}` {
		t.Errorf("got %s, %v", zero, err)
	}
}

func TestExpandFillsInTheEnvelope(t *testing.T) {
	c := workerconfig.Config{CheckTimeoutSeconds: 7, Checks: []check.Spec{{Name: "a", Type: "tcp"}, {Name: "b", Type: "tcp", TimeoutSeconds: 3, Severity: check.Advisory}}}
	got := c.Expand()
	if got[0].TimeoutSeconds != 7 || got[0].Severity != check.Required || got[0].Attempts != 1 || got[0].IntervalSeconds != 1 {
		t.Errorf("got %+v", got[0])
	}
	if got[1].TimeoutSeconds != 3 || got[1].Severity != check.Advisory {
		t.Errorf("got %+v", got[1])
	}
	if c.Checks[0].Severity != "" {
		t.Error("Expand changed its receiver")
	}
	if faults := check.Validate((workerconfig.Config{}).Expand(), field.NewPath("checks")); len(faults) > 0 {
		t.Errorf("the built-ins are not valid: %v", faults)
	}
}

func TestLongDomains(t *testing.T) {
	a := strings.Repeat("a-long-label.", 8) + "example.com"
	b := strings.Repeat("a-long-label.", 8) + "example.net"
	specs := workerconfig.Config{DNSTestDomains: []string{a, b, "_srv.example.com", "x_.example"}}.Expand()
	if faults := check.Validate(specs, field.NewPath("checks")); len(faults) > 0 {
		t.Errorf("%v", faults)
	}
	if specs[5].DNS.Name != a {
		t.Errorf("got %+v", specs[5])
	}
}

// TestToleratedKeysAreTheControllers keeps the keys that a worker passes over in step with
// the controller's.
func TestToleratedKeysAreTheControllers(t *testing.T) {
	tolerated, controllers := workerconfig.ToleratedKeys()
	for what, c := range map[string]struct {
		tolerated []string
		of        reflect.Type
		own       reflect.Type
	}{
		"worker section": {tolerated, reflect.TypeFor[config.Worker](), reflect.TypeFor[workerconfig.Config]()},
		"sections":       {controllers, reflect.TypeFor[config.Config](), nil},
	} {
		want := keys(c.of)
		if c.own != nil {
			own := keys(c.own)
			want = slices.DeleteFunc(want, func(k string) bool { return slices.Contains(own, k) })
		} else {
			want = slices.DeleteFunc(want, func(k string) bool { return k == "worker" })
			// Sections that are specified and that a later controller reads.
			want = append(want, "webhook", "rules")
		}
		want = slices.DeleteFunc(want, func(k string) bool { return k == "" }) // fields that no file sets
		slices.Sort(want)
		want = slices.Compact(want)
		slices.Sort(c.tolerated)
		if !slices.Equal(want, c.tolerated) {
			t.Errorf("%s: a worker passes over %v, the controller reads %v", what, c.tolerated, want)
		}
	}
}

// keys lists the json names of a struct's fields, inlined ones among them.
func keys(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			names = append(names, keys(f.Type)...)
			continue
		}
		names = append(names, name)
	}
	return names
}

// FuzzLoad: whatever a file holds, it is refused with faults or can be expanded, handed on
// and read back.
func FuzzLoad(f *testing.F) {
	f.Add([]byte("worker: {checks: [{name: a, type: dns, dns: {name: x}}], dnsTestDomains: [a.b]}"))
	if example, err := os.ReadFile("../../examples/worker-config.yaml"); err == nil {
		f.Add(example)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := workerconfig.Load(data, "fuzz")
		if err != nil {
			return
		}
		if faults := check.Validate(c.Expand(), field.NewPath("checks")); len(faults) > 0 {
			t.Errorf("expanded to faults: %v", faults)
		}
		env, err := c.Env()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := workerconfig.Load([]byte(env), "env"); err != nil {
			t.Errorf("%s: %v", env, err)
		}
	})
}
