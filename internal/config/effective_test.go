package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

const profiles = `
worker:
  dnsTestDomains: [example.com]
  timeoutSeconds: 60
  tolerations: [{key: base, operator: Exists}]
reconciliation: {verificationDeadlineSeconds: 3600}
nodeManagement:
  taints:
  - {key: base, value: "1", effect: NoSchedule}
  nodeSelector: {matchExpressions: [{key: skip, operator: DoesNotExist}]}
  prerequisites: {nodeReady: true}
profiles:
- name: gpu
  nodeSelector: {matchLabels: {gpu: "yes"}}
  checks: [{name: net, type: tcp}]
  dnsTestDomains: [gpu.example.com]
  timeoutSeconds: 300
  verificationDeadlineSeconds: 0
  taints:
  - {key: gpu, value: "2", effect: NoSchedule}
  - {key: base, value: "3", effect: NoExecute}
  - {key: base, value: "4", effect: NoSchedule}
  prerequisites: {conditions: [{type: GPUReady}]}
  tolerations: [{key: gpu, operator: Exists}]
  resources: {requests: {cpu: 1}}
- name: named-only
  nodeSelector: {matchLabels: {pool: spot}}
`

func parse(t *testing.T, data string) *Config {
	t.Helper()
	c, err := Parse([]byte(data), "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFor(t *testing.T) {
	c := parse(t, profiles)
	base := c.For(nil)
	if base.Profile != "" || base.TimeoutSeconds != 60 || len(base.Checks) != 0 || base.DNSTestDomains[0] != "example.com" ||
		base.Taints[0].Key != "base" || !base.Prerequisites.NodeReady || base.Tolerations[0].Key != "base" || base.Resources.Requests != nil {
		t.Errorf("no profile: got %+v", base)
	}

	gpu := c.For(map[string]string{"gpu": "yes", "pool": "spot"}) // the first that matches wins
	if gpu.Profile != "gpu" || gpu.TimeoutSeconds != 300 || gpu.Checks[0].Name != "net" || gpu.DNSTestDomains[0] != "gpu.example.com" ||
		gpu.Taints[0].Key != "gpu" || gpu.Prerequisites.NodeReady || gpu.Tolerations[0].Key != "gpu" || gpu.Resources.Requests.Cpu().Value() != 1 {
		t.Errorf("gpu: got %+v", gpu)
	}
	if base.VerificationDeadlineSeconds != 3600 || gpu.VerificationDeadlineSeconds != 0 {
		t.Errorf("deadlines: %d, and %d where a profile has none", base.VerificationDeadlineSeconds, gpu.VerificationDeadlineSeconds)
	}
	if status := gpu.Prerequisites.Conditions[0].Status; status != "True" {
		t.Errorf("a profile's condition has status %q by default, want True", status)
	}

	spot := c.For(map[string]string{"pool": "spot"})
	if spot.Profile != "named-only" {
		t.Errorf("spot: got profile %q", spot.Profile)
	}
	spot.Profile = ""
	if !reflect.DeepEqual(spot, base) {
		t.Errorf("a profile that sets nothing: got %+v, want %+v", spot, base)
	}
	if base.Profile != "" || c.For(nil).TimeoutSeconds != 60 {
		t.Error("a profile changed the configuration itself")
	}
}

// TestForByHand: a Config that did not come from Parse has no compiled selectors.
func TestForByHand(t *testing.T) {
	parsed := parse(t, profiles)
	c := &Config{Profiles: []Profile{{Name: "x", NodeSelector: parsed.Profiles[0].NodeSelector}}}
	c.NodeManagement.NodeSelector = parsed.NodeManagement.NodeSelector
	if got := c.For(map[string]string{"gpu": "yes"}).Profile; got != "x" {
		t.Errorf("got profile %q, want x", got)
	}
	if c.Selects(map[string]string{"skip": ""}) || !c.Selects(nil) {
		t.Error("nodeSelector was not applied")
	}
	c.Profiles[0].NodeSelector.MatchLabels = map[string]string{"not a label": ""}
	if got := c.For(map[string]string{"not a label": ""}).Profile; got != "" {
		t.Errorf("an invalid selector matched: profile %q", got)
	}
}

func TestSelects(t *testing.T) {
	c := parse(t, profiles)
	if c.Selects(map[string]string{"skip": "x"}) || !c.Selects(map[string]string{"a": "b"}) {
		t.Error("nodeSelector was not applied")
	}
	if !parse(t, "").Selects(nil) {
		t.Error("without a nodeSelector every node is selected")
	}
}

func TestGatingTaints(t *testing.T) {
	want := []marks.Taint{
		{Key: "base", Value: "1", Effect: "NoSchedule"},
		{Key: "gpu", Value: "2", Effect: "NoSchedule"},
		{Key: "base", Value: "3", Effect: "NoExecute"},
	}
	if got := parse(t, profiles).GatingTaints(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestReference(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for _, test := range []struct {
		image         Image
		version, want string
	}{
		{Image{Repository: "r/i"}, "v1.2.3", "r/i:v1.2.3"},
		{Image{Repository: "r/i"}, "v1.2.3-4+dirty", "r/i:v1.2.3-4-dirty"},
		{Image{Repository: "r/i"}, "(devel)", "r/i:devel-"},
		{Image{Repository: "r/i"}, "", "r/i:latest"},
		{Image{Repository: "r/i"}, strings.Repeat("a", 200), "r/i:" + strings.Repeat("a", 128)},
		{Image{Repository: "r/i", Tag: "t"}, "v1", "r/i:t"},
		{Image{Repository: "r/i", Tag: "t", Digest: digest}, "v1", "r/i@" + digest},
	} {
		if got := test.image.Reference(test.version); got != test.want {
			t.Errorf("%+v of %q: got %q, want %q", test.image, test.version, got, test.want)
		}
	}
}
