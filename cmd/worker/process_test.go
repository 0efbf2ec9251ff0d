package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "worker")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// TestSignals: told to stop, a worker ends within a second, says what it knows, and does not
// blame the node.
func TestSignals(t *testing.T) {
	binary := build(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		log := filepath.Join(t.TempDir(), "termination-log")
		cmd := exec.Command(binary, "--log-level", "info")
		cmd.Env = []string{"KUBE_NODE_READY_TERMINATION_LOG=" + log, "NODE_NAME=node-a", "PATH=" + os.Getenv("PATH"), `KUBE_NODE_READY_CONFIG={"worker":{"checks":[
			{"name":"quick","type":"file","file":{"path":"/"}},
			{"name":"broken","type":"file","file":{"path":"/no/such"}},
			{"name":"slow","type":"exec","timeoutSeconds":100,"exec":{"command":["sleep","100"]}},
			{"name":"waits","type":"file","dependsOn":["slow"],"file":{"path":"/"}}]}}`}
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stderr)
		for n := 0; n < 2 && lines.Scan(); n++ { // quick and broken have ended
			if !json.Valid(lines.Bytes()) {
				t.Errorf("%s is no JSON", lines.Text())
			}
		}
		start := time.Now()
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // the pipe is read to its end before Wait
		}
		_ = cmd.Wait()
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: ended after %s", sig, took)
		}
		if code := cmd.ProcessState.ExitCode(); code != result.ExitInternal {
			t.Errorf("%s: exit code %d, want %d", sig, code, result.ExitInternal)
		}
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		report, err := result.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, c := range report.Checks {
			got[c.Name] = strings.TrimSpace(string(c.Outcome) + " " + c.Reason)
		}
		for name, want := range map[string]string{"quick": "passed", "broken": "failed NotFound", "slow": "skipped Interrupted", "waits": "skipped DependencyFailed"} {
			if got[name] != want {
				t.Errorf("%s: %s is %q, want %q", sig, name, got[name], want)
			}
		}
	}
}

// TestWhatTheWorkerIsMadeOf keeps the worker small: no client library and nothing of the controller's but its decisions, which
// DaemonSet mode has in common with it, with the API's types.
func TestWhatTheWorkerIsMadeOf(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range strings.Fields(string(out)) {
		for _, banned := range []string{"sigs.k8s.io/controller-runtime", "sigs.k8s.io/karpenter", "k8s.io/client-go", "github.com/prometheus/client_golang",
			"github.com/kube-node-ready/kube-node-ready/internal/controller", "github.com/kube-node-ready/kube-node-ready/internal/manager"} {
			if strings.HasPrefix(p, banned) || p == strings.TrimSuffix(banned, "/") {
				t.Errorf("the worker depends on %s", p)
			}
		}
	}
}
