package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommandLine(t *testing.T) {
	for _, tc := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"--version"}, 0, "kube-node-ready-controller dev", ""},
		{[]string{"--help"}, 0, "", "-dry-run"},
		{[]string{"--no-such-flag"}, exitConfig, "", "no-such-flag"},
		{[]string{"stray"}, exitConfig, "", "stray"},
		{[]string{"--config", filepath.Join(t.TempDir(), "none.yaml")}, exitConfig, "", "none.yaml"},
		{[]string{"--config", "../../examples/controller-config.yaml", "--log-level", "loud"}, exitConfig, "", "loud"},
		{[]string{"--config", "../../examples/controller-config.yaml", "--log-format", "xml"}, exitConfig, "", "xml"},
		{[]string{"--config", "../../examples/controller-config.yaml", "--log-level", "debug", "--print-config"}, 0, "level: debug\n", ""},
	} {
		var stdout, stderr bytes.Buffer
		code := run(tc.args, &stdout, &stderr)
		if code != tc.code || !strings.Contains(stdout.String(), tc.stdout) || !strings.Contains(stderr.String(), tc.stderr) {
			t.Errorf("%v: exit code %d, %q, %q", tc.args, code, stdout.String(), stderr.String())
		}
	}
}
