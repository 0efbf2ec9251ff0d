package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
)

// outside is the environment of a host that is no pod: nothing is set but what a test sets.
func outside(t *testing.T, env map[string]string) func(string) string {
	t.Helper()
	dir := t.TempDir()
	return func(name string) string {
		if v, ok := env[name]; ok {
			return v
		}
		switch name {
		case worker.EnvServiceAccountDir:
			return filepath.Join(dir, "serviceaccount")
		case worker.EnvResolvConf:
			return filepath.Join(dir, "resolv.conf")
		}
		return ""
	}
}

func runWorker(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(context.Background(), args, outside(t, env), &out, &err, nil)
	return code, out.String(), err.String()
}

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("worker:\n  checks:\n    - name: a\n      type: dsn\n      tries: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const two = `{"worker":{"checks":[{"name":"a","type":"file","file":{"path":"/"}},{"name":"b","type":"file","file":{"path":"/no/such"}}]}}`
	for _, c := range []struct {
		name           string
		env            map[string]string
		args           []string
		code           int
		stdout, stderr []string
	}{
		{name: "version", args: []string{"--version"}, stdout: []string{"kube-node-ready-worker dev"}},
		{name: "help", args: []string{"--help"}, stdout: []string{"--config", "--dry-run", "--only", "KUBE_NODE_READY_TERMINATION_LOG", "10  unexpected internal error"}},
		{name: "unknown flag", args: []string{"--confg"}, code: 2, stderr: []string{"unknown flag: --confg", "--help"}},
		{name: "unknown command", args: []string{"check"}, code: 2, stderr: []string{`unknown command "check"`}},
		{name: "unknown output", args: []string{"--output", "yaml"}, code: 2, stderr: []string{"--output yaml: must be text or json"}},
		{name: "unknown level", env: map[string]string{"LOG_LEVEL": "loud"}, code: 2, stderr: []string{"LOG_LEVEL"}},
		{name: "unknown format", args: []string{"--log-format", "xml"}, code: 2, stderr: []string{"json or console"}},
		{name: "no such file", args: []string{"--config", bad + "x"}, code: 2, stderr: []string{"--config: open"}},
		{name: "faults", args: []string{"verify", "--config", bad}, code: 2,
			stderr: []string{bad + ":4: worker.checks[0].type: ", bad + ":5: worker.checks[0].tries: unknown key"}},
		{name: "faults in the environment", env: map[string]string{"KUBE_NODE_READY_CONFIG": "worker: {timeoutSeconds: x}"}, code: 2,
			stderr: []string{"KUBE_NODE_READY_CONFIG:1: worker.timeoutSeconds: must be a whole number"}},
		{name: "no such check", args: []string{"--dry-run", "--only", "dns,nds"}, code: 2,
			stderr: []string{"--only nds: no check has this name; the checks are dns, api, network, service-discovery, dns-endpoints, clock"}},
		{name: "no cluster", code: 3, stdout: []string{`"outcome":"client-error"`, "KUBERNETES_SERVICE_HOST"}},
		{name: "no token", env: map[string]string{"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "443"}, code: 3, stdout: []string{"the cluster's CA cannot be read"}},
		{name: "dry run", env: map[string]string{"KUBE_NODE_READY_CONFIG": "worker: {checkTimeoutSeconds: 1}"},
			args: []string{"--dry-run"}, code: 1, stdout: []string{`"name":"dns","type":"dns","severity":"required","outcome":"failed"`,
				`"name":"network","type":"tcp","severity":"required","outcome":"failed"`, "this is a dry run outside a cluster", "needs a cluster, but this host is not in one"}},
		{name: "nothing was checked", args: []string{"--dry-run", "--only", "api,service-discovery", "-o", "text"}, code: 4, stdout: []string{"inconclusive", "(6 skipped): nothing was checked"}},
		{name: "a kubeconfig that is not there", args: []string{"--dry-run", "--kubeconfig", "/no/such", "--only", "api"}, code: 4, stdout: []string{"the kubeconfig cannot be used: open /no/such"}},
		{name: "a kubeconfig in a pod", args: []string{"--kubeconfig", "/no/such"}, code: 2, stderr: []string{"--kubeconfig needs --dry-run"}},
		{name: "a failure", env: map[string]string{"KUBE_NODE_READY_CONFIG": two}, code: 1, stdout: []string{`{"name":"b","type":"file","severity":"required","outcome":"failed"`},
			stderr: []string{`"check":"b"`, `"level":"warn"`, `"msg":"check failed"`}},
		{name: "could not tell", env: map[string]string{"KUBE_NODE_READY_CONFIG": `{"worker":{"checks":[{"name":"gpu","type":"exec","exec":{"command":["/bin/sh","-c","exit 9"]}},{"name":"b","type":"file","dependsOn":["gpu"],"file":{"path":"/"}}]}}`}, code: 4,
			stdout: []string{`"outcome":"inconclusive","durationMs"`, `{"name":"gpu","type":"exec","severity":"required","outcome":"inconclusive"`, `"outcome":"skipped"`}},
		{name: "only", env: map[string]string{"KUBE_NODE_READY_CONFIG": two}, args: []string{"--only", "a"}, stdout: []string{`"reason":"NotSelected"`}},
		{name: "skip", env: map[string]string{"KUBE_NODE_READY_CONFIG": two}, args: []string{"--skip", "b"}, stdout: []string{`"outcome":"passed"`}},
		{name: "the file wins over the environment", env: map[string]string{"KUBE_NODE_READY_CONFIG": "nonsense"}, args: []string{"--dry-run", "--config", os.DevNull, "--list"}},
		{name: "list", args: []string{"--list", "-o", "text", "--skip", "api"}, stdout: []string{
			"CHECK               TYPE               SEVERITY   TIMEOUT   ATTEMPTS   DEPENDS ON\n",
			"service-discovery   serviceDiscovery   required   10s       1          dns, api\n"}},
		{name: "list as JSON", args: []string{"--list"}, stdout: []string{`"name": "service-discovery"`, `"dependsOn"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := runWorker(t, c.env, c.args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, s := range c.stdout {
				if !strings.Contains(stdout, s) {
					t.Errorf("standard output lacks %q:\n%s", s, stdout)
				}
			}
			for _, s := range c.stderr {
				if !strings.Contains(stderr, s) {
					t.Errorf("standard error lacks %q:\n%s", s, stderr)
				}
			}
			if t.Failed() {
				t.Logf("stdout: %s\nstderr: %s", stdout, stderr)
			}
		})
	}
}

// TestPanic: an internal error is not taken for one of its configuration or of the node.
func TestPanic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "termination-log")
	getenv := outside(t, map[string]string{worker.EnvTerminationLog: path})
	code := run(context.Background(), []string{"--log-format", "json", "--log-level", "error"}, func(name string) string {
		if name == worker.EnvServiceHost {
			panic("oops")
		}
		return getenv(name)
	}, &bytes.Buffer{}, &bytes.Buffer{}, nil)
	if code != result.ExitInternal {
		t.Errorf("exit code %d", code)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if report, err := result.Parse(data); err != nil || report.Outcome != result.InternalError || !strings.Contains(report.Checks[0].Message, "oops") {
		t.Errorf("got %s, %v", data, err)
	}
}

func TestTerminationLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "termination-log")
	for _, c := range []struct {
		config  string
		outcome result.Outcome
	}{
		{`{"worker":{"checks":[{"name":"a","type":"file","file":{"path":"/"}}]}}`, result.Passed},
		{`{"worker":{"checks":[{"name":"a","type":"file"}]}}`, result.ConfigError},
		{``, result.ClientError},
	} {
		runWorker(t, map[string]string{worker.EnvTerminationLog: path, "KUBE_NODE_READY_CONFIG": c.config, "NODE_NAME": "node-a"})
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		report, err := result.Parse(data)
		if err != nil || report.Outcome != c.outcome || report.Node != "node-a" || len(report.Checks) != 1 {
			t.Errorf("%s: got %s, %v", c.config, data, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	runWorker(t, map[string]string{worker.EnvTerminationLog: path}, "--dry-run")
	if _, err := os.Stat(path); err == nil {
		t.Error("a dry run wrote a termination log")
	}
	code, stdout, stderr := runWorker(t, map[string]string{worker.EnvTerminationLog: "/no/such/folder/log",
		"KUBE_NODE_READY_CONFIG": `{"worker":{"checks":[{"name":"a","type":"file","file":{"path":"/"}}]}}`})
	if code != 0 || !strings.Contains(stderr, "cannot write the report to the termination log") || !json.Valid([]byte(stdout)) {
		t.Errorf("got %d, %s, %s", code, stdout, stderr)
	}
}
