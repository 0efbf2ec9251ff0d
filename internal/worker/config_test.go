package worker_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/limits"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
)

func names(specs []checks.Spec) string {
	var n []string
	for _, s := range specs {
		n = append(n, s.Name)
	}
	return strings.Join(n, " ")
}

func TestLoad(t *testing.T) {
	for _, c := range []struct{ name, yaml, checks string }{
		{"nothing", "", "dns api network service-discovery dns-endpoints clock"},
		{"an empty section", "worker:\n", "dns api network service-discovery dns-endpoints clock"},
		{"domains", "worker: {dnsTestDomains: [example.com, registry.example.com.]}", "dns api network service-discovery dns-endpoints clock dns-example.com dns-registry.example.com"},
		{"checks", "worker: {checks: [{name: a, type: tcp}]}", "a"},
		{"none", "worker: {checks: []}", ""},
		{"null is no list", "worker: {checks: }", "dns api network service-discovery dns-endpoints clock"},
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
`, "dns api network service-discovery dns-endpoints clock dns-example.com"},
	} {
		config, err := worker.Load([]byte(c.yaml), "config.yaml")
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
	_, err := worker.Load([]byte(`worker:
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
		"config.yaml:5: worker.dnsTestDomains[1]: Invalid value: \"example.com\": its check would have the name dns-example.com",
		"config.yaml:6: worker.dnsTestDomains[2]: Duplicate value",
		"config.yaml:7: worker.dnsTestDomains[3]: Invalid value: \"example.com.\": its check would have the name dns-example.com",
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
	_, err := worker.Load([]byte(`worker:
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
	if err == nil || strings.Count(err.Error(), "must be between ") != 10 || strings.Count(err.Error(), "\n") != 9 {
		t.Errorf("got %v", err)
	}
}

// TestEnv: what the controller hands to a worker is what the worker reads.
func TestEnv(t *testing.T) {
	before, err := worker.Load([]byte(`worker: {checks: [{name: a, type: http, severity: warning, http: {url: "https://h/?a=1&b=<2>", headers: {A: "b: c #d", B: "$$ $(NODE_NAME)"}}}], timeoutSeconds: 30}`), "file")
	if err != nil {
		t.Fatal(err)
	}
	env, err := before.Env()
	if err != nil {
		t.Fatal(err)
	}
	after, err := worker.Load([]byte(env), worker.EnvVar)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, after) {
		t.Errorf("%+v became %+v through %s", before, after, env)
	}
	if strings.Contains(env, "$") {
		t.Errorf("the kubelet would expand %s", env)
	}
	zero, err := worker.Config{}.Env()
	if err != nil || zero != `{"worker":{}}` {
		t.Errorf("got %s, %v", zero, err)
	}
}

func TestExpandFillsInTheEnvelope(t *testing.T) {
	c := worker.Config{CheckTimeoutSeconds: 7, Checks: []checks.Spec{{Name: "a", Type: "tcp"}, {Name: "b", Type: "tcp", TimeoutSeconds: new(int32(3)), Severity: checks.Advisory}}}
	got := c.Expand()
	if got[0].Timeout() != 7*time.Second || got[0].Severity != checks.Required || got[0].MaxAttempts() != 1 || got[0].Interval() != time.Second {
		t.Errorf("got %+v", got[0])
	}
	if got[1].Timeout() != 3*time.Second || got[1].Severity != checks.Advisory {
		t.Errorf("got %+v", got[1])
	}
	if c.Checks[0].Severity != "" {
		t.Error("Expand changed its receiver")
	}
	if faults := validate((worker.Config{}).Expand()); len(faults) > 0 {
		t.Errorf("the built-ins are not valid: %v", faults)
	}
}

// validate reports everything that is wrong with a list of checks.
func validate(specs []checks.Spec) field.ErrorList {
	p := field.NewPath("checks")
	return append(limits.Validate(p, specs), checks.Validate(specs, p)...)
}

func TestLongDomains(t *testing.T) {
	a := strings.Repeat("a-long-label.", 8) + "example.com"
	b := strings.Repeat("a-long-label.", 8) + "example.net"
	specs := worker.Config{DNSTestDomains: []string{a, b, "_srv.example.com", "x_.example"}}.Expand()
	if faults := validate(specs); len(faults) > 0 {
		t.Errorf("%v", faults)
	}
	if specs[6].DNS.Name != a {
		t.Errorf("got %+v", specs[5])
	}
}

// TestToleratedKeysAreTheControllers keeps the keys that a worker passes over in step with
// the controller's.
func TestToleratedKeysAreTheControllers(t *testing.T) {
	tolerated, controllers := worker.ToleratedKeys()
	for what, c := range map[string]struct {
		tolerated []string
		of        reflect.Type
		own       reflect.Type
	}{
		"worker section": {tolerated, reflect.TypeFor[config.Worker](), reflect.TypeFor[worker.Config]()},
		"sections":       {controllers, reflect.TypeFor[config.Config](), nil},
	} {
		want := keys(c.of)
		if c.own != nil {
			own := keys(c.own)
			want = slices.DeleteFunc(want, func(k string) bool { return slices.Contains(own, k) })
		} else {
			want = slices.DeleteFunc(want, func(k string) bool { return k == "worker" })
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
		c, err := worker.Load(data, "fuzz")
		if err != nil {
			return
		}
		if faults := validate(c.Expand()); len(faults) > 0 {
			t.Errorf("expanded to faults: %v", faults)
		}
		env, err := c.Env()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := worker.Load([]byte(env), "env"); err != nil {
			t.Errorf("%s: %v", env, err)
		}
	})
}

func TestAddressesAmongTheDomains(t *testing.T) {
	c, err := worker.Load([]byte(`worker: {dnsTestDomains: [example.com, 8.8.8.8, "2001:db8::1", "::1"]}`), "file")
	if err != nil {
		t.Fatal(err)
	}
	specs := c.Expand()
	if faults := validate(specs); len(faults) > 0 {
		t.Errorf("%v", faults)
	}
	if got := names(specs); !strings.HasSuffix(got, " dns-example.com dns-8.8.8.8 dns-2001-db8--1 dns---1") {
		t.Errorf("got %s", got)
	}
	if _, err := worker.Load([]byte(`worker: {dnsTestDomains: [endpoints]}`), "file"); err == nil || !strings.Contains(err.Error(), "its check would have the name dns-endpoints, which a built-in check already has") {
		t.Errorf("got %v", err)
	}
	for _, refused := range []string{"fe80::1%eth0", "[::1]", "8.8.8.8:53", "1:2"} {
		if _, err := worker.Load([]byte(`worker: {dnsTestDomains: ["`+refused+`"]}`), "file"); err == nil {
			t.Errorf("%s is accepted", refused)
		}
	}
}

// The configurations in docs/reference/checks.md can be used as they are.
func TestRecipes(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i, block := range strings.Split(string(page), "```") {
		recipe, isYAML := strings.CutPrefix(block, "yaml\n")
		if i%2 == 0 || !isYAML || !strings.HasPrefix(recipe, "worker:") {
			continue
		}
		found++
		if _, err := config.Parse([]byte(recipe), "recipe"); err != nil {
			t.Errorf("%v in\n%s", err, recipe)
		}
	}
	if found < 2 {
		t.Errorf("%d recipes were found", found)
	}
}
