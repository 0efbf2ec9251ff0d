package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain is the controller where the test program runs under the controller's name: a build of the controller takes three
// times what the rest of this package does.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "kube-node-ready-controller" {
		main()
	}
	os.Exit(m.Run())
}

// Manifests of the SIG's reporter name an image and no command: its entry point, this program, becomes the worker's report.
func TestBecomesTheReporter(t *testing.T) {
	dir := t.TempDir()
	program, worker := filepath.Join(dir, "kube-node-ready-controller"), filepath.Join(dir, "kube-node-ready-worker")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, content, 0o700); err != nil {
		t.Fatal(err)
	}
	start := func(env []string, args ...string) (int, string) {
		cmd := exec.Command(program, args...)
		cmd.Env = env
		out, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(out)
	}
	endpoint := []string{"CHECK_ENDPOINT=http://localhost:9099/readiness"}
	if code, out := start(endpoint); code != exitError || !strings.Contains(out, "CHECK_ENDPOINT is set") || !strings.Contains(out, worker) {
		t.Errorf("without a worker: exit code %d: %s", code, out)
	}
	if err := os.WriteFile(worker, []byte("#!/bin/sh\necho \"worker $* $CHECK_ENDPOINT\"; exit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if code, out := start(endpoint); code != 7 || out != "worker report http://localhost:9099/readiness\n" {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out := start(endpoint, "--version"); code != 0 || !strings.HasPrefix(out, "kube-node-ready-controller ") {
		t.Errorf("with an argument: exit code %d: %s", code, out)
	}
	if code, out := start(nil, "--config", "/none"); code != exitConfig || strings.Contains(out, "worker") {
		t.Errorf("without an endpoint: exit code %d: %s", code, out)
	}
}
