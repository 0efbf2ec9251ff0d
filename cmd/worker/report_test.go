package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/reporter"
)

func TestReportCommandLine(t *testing.T) {
	complete := func(t *testing.T) map[string]string {
		env := apiServer(t, http.NotFound)
		env[reporter.EnvNodeName], env[reporter.EnvEndpoint], env[reporter.EnvConditionType] = "node-a", "http://localhost:1/", "example.com/AgentReady"
		return env
	}
	for _, c := range []struct {
		name           string
		args           []string
		change         func(map[string]string)
		code           int
		stdout, stderr []string
	}{
		{name: "help", args: []string{"--help"}, stdout: []string{"CHECK_ENDPOINT", "REPORT_UNKNOWN_ON_SHUTDOWN", "--log-level"}},
		{name: "version", args: []string{"--version"}, stdout: []string{"kube-node-ready-worker dev"}},
		{name: "verify's flags", args: []string{"--config", "x"}, code: 1, stderr: []string{"unknown flag: --config", "report --help"}},
		{name: "an argument", args: []string{"x"}, code: 1, stderr: []string{`unexpected argument "x"`}},
		{name: "unknown level", args: []string{"--log-level", "loud"}, code: 1, stderr: []string{"LOG_LEVEL"}},
		{name: "no node", change: func(env map[string]string) { delete(env, reporter.EnvNodeName) }, code: 1, stderr: []string{"NODE_NAME: required", "spec.nodeName"}},
		{name: "no cluster", change: func(env map[string]string) { env["KUBERNETES_SERVICE_HOST"] = "" }, code: 1, stderr: []string{"KUBERNETES_SERVICE_HOST"}},
		{name: "no service account", change: func(env map[string]string) { env["KUBE_NODE_READY_SERVICEACCOUNT_DIR"] = t.TempDir() }, code: 1, stderr: []string{"the cluster's CA cannot be read"}},
	} {
		env := complete(t)
		if c.change != nil {
			c.change(env)
		}
		code, stdout, stderr := runWorker(t, env, append([]string{"report"}, c.args...)...)
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d", c.name, code, c.code)
		}
		for _, s := range c.stdout {
			if !strings.Contains(stdout, s) {
				t.Errorf("%s: standard output lacks %q: %s", c.name, s, stdout)
			}
		}
		for _, s := range c.stderr {
			if !strings.Contains(stderr, s) {
				t.Errorf("%s: standard error lacks %q: %s", c.name, s, stderr)
			}
		}
	}
}

// A taken metrics port and a bad value are warnings: the condition is reported all the same.
func TestReportWithoutMetrics(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	env := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		var patch struct{ Status struct{ Conditions []any } }
		_ = json.NewDecoder(r.Body).Decode(&patch)
		if len(patch.Status.Conditions) == 1 {
			cancel() // it is written
		}
		_, _ = w.Write([]byte(`{"metadata":{"uid":"u"}}`))
	})
	env[reporter.EnvNodeName], env[reporter.EnvEndpoint], env[reporter.EnvConditionType] = "node-a", "http://localhost:1/", "example.com/AgentReady"
	env[reporter.EnvMetrics], env[reporter.EnvInterval] = listener.Addr().String(), "often"
	var stdout, stderr bytes.Buffer
	code := run(ctx, []string{"report"}, outside(t, env), &stdout, &stderr, nil)
	if code != 0 || !strings.Contains(stderr.String(), "set METRICS_BIND_ADDRESS to a free address") || !strings.Contains(stderr.String(), `CHECK_INTERVAL: \"often\"`) {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Error("the condition is not written")
	}
}
