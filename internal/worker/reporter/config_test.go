package reporter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func environment(pairs ...string) func(string) string {
	values := map[string]string{EnvNodeName: "node-1", EnvEndpoint: "http://localhost:9099/readiness", EnvConditionType: "projectcalico.org/CalicoReady"}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return values[name] }
}

func TestDefaults(t *testing.T) {
	c, warnings, err := FromEnv(environment())
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if c.Interval != 30*time.Second || c.Heartbeat != 5*time.Minute || c.Grace != time.Second || c.MetricsAddress != ":9445" || c.Impersonate || c.UnknownOnShutdown {
		t.Errorf("got %+v", c)
	}
}

func TestBadValuesFallBackWithAWarning(t *testing.T) {
	for _, value := range []string{"5", "0", "-1s", "1ms", "soon"} {
		c, warnings, err := FromEnv(environment(EnvInterval, value, EnvHeartbeat, value, EnvImpersonate, "True", EnvUnknownOnShutdown, "1", EnvGrace, "-1s"))
		if err != nil || c.Interval != 30*time.Second || c.Heartbeat != 5*time.Minute || c.Grace != time.Second || c.Impersonate || c.UnknownOnShutdown {
			t.Errorf("%s: got %+v, %v", value, c, err)
		}
		all := strings.Join(warnings, "\n")
		for _, name := range []string{EnvInterval, EnvHeartbeat, EnvGrace, EnvImpersonate, EnvUnknownOnShutdown} {
			if !strings.Contains(all, name+": ") {
				t.Errorf("%s: no warning names %s: %q", value, name, warnings)
			}
		}
	}
	c, warnings, err := FromEnv(environment(EnvInterval, "1m30s", EnvHeartbeat, "1h", EnvGrace, "0s", EnvImpersonate, "true", EnvUnknownOnShutdown, "true", EnvMetrics, "0"))
	if err != nil || len(warnings) > 0 || c.Interval != 90*time.Second || c.Heartbeat != time.Hour || c.Grace != 0 || !c.Impersonate || !c.UnknownOnShutdown || c.MetricsAddress != "0" {
		t.Errorf("got %+v, %q, %v", c, warnings, err)
	}
}

func TestFaultsNameTheVariable(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, value, says string }{
		{EnvNodeName, "", "NODE_NAME: required: set it from the field spec.nodeName"},
		{EnvNodeName, "a b", `NODE_NAME: "a b" is not a node name`},
		{EnvEndpoint, "", "CHECK_ENDPOINT: required"},
		{EnvEndpoint, "localhost:9099", `CHECK_ENDPOINT: the scheme "localhost" is neither http nor https`},
		{EnvEndpoint, "ftp://localhost/", `CHECK_ENDPOINT: the scheme "ftp" is neither http nor https`},
		{EnvEndpoint, "http:///healthz", "CHECK_ENDPOINT: has no host"},
		{EnvEndpoint, "http://localhost:70000/", "CHECK_ENDPOINT: the port 70000 is not between"},
		{EnvEndpoint, "http://user:secret@[::1/", "CHECK_ENDPOINT: is not a URL"},
		{EnvConditionType, "", "CONDITION_TYPE: required"},
		{EnvConditionType, "Ready", "CONDITION_TYPE: Ready is written by another component"},
		{EnvConditionType, "a/b/c", `CONDITION_TYPE: "a/b/c"`},
		{EnvConditionType, strings.Repeat("a", 317), "CONDITION_TYPE: has 317 characters"},
		{EnvCAFile, none, "CHECK_CA_FILE: cannot be read"},
		{EnvCAFile, text, "holds no PEM certificate"},
		{EnvCAFile, text, "CHECK_CA_FILE: is for an https endpoint"},
	} {
		_, _, err := FromEnv(environment(c.name, c.value))
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s=%s: got %v, want %q", c.name, c.value, err, c.says)
		}
	}
	_, _, err := FromEnv(func(string) string { return "" })
	for _, name := range []string{EnvNodeName, EnvEndpoint, EnvConditionType} {
		if err == nil || !strings.Contains(err.Error(), name+": required") {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
}
