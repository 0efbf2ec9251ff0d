package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

// fullPipe is a pipe into which nothing more fits, and from which nobody reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := syscall.Write(fds[1], make([]byte, 4096)); err != nil {
			break
		}
	}
	if err := syscall.SetNonblock(fds[1], false); err != nil { // as a container's output is
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fds[0]) })
	w := os.NewFile(uintptr(fds[1]), "full pipe")
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// ends runs the worker and returns its exit code, and how long it took.
func ends(t *testing.T, cmd *exec.Cmd) (int, time.Duration) {
	t.Helper()
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
	defer killed.Stop()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), time.Since(start)
}

const oneFails = `KUBE_NODE_READY_CONFIG={"worker":{"timeoutSeconds":2,"checkTimeoutSeconds":1,"checks":[
	{"name":"fine","type":"file","file":{"path":"/"}},{"name":"broken","type":"file","file":{"path":"/no/such"}}]}}`

// Nobody may read what a worker prints; it ends in its time all the same, and the report is there.
func TestOutputThatNobodyReads(t *testing.T) {
	binary := build(t)
	closed := func(t *testing.T) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		t.Cleanup(func() { _ = w.Close() })
		return w
	}
	for name, pipe := range map[string]func(*testing.T) *os.File{"full": fullPipe, "closed": closed} {
		log := filepath.Join(t.TempDir(), "termination-log")
		cmd := exec.Command(binary)
		cmd.Stdout = pipe(t)
		cmd.Stderr = cmd.Stdout
		cmd.Env = []string{"KUBE_NODE_READY_TERMINATION_LOG=" + log, "LOG_LEVEL=info",
			strings.Replace(oneFails, `"timeoutSeconds":2`, `"timeoutSeconds":8`, 1)}
		code, took := ends(t, cmd)
		if code != result.ExitFailed || took > 6*time.Second {
			t.Errorf("%s: exit code %d after %s", name, code, took)
		}
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := result.Parse(data); err != nil || r.Outcome != result.Failed {
			t.Errorf("%s: got %s, %v", name, data, err)
		}
	}
}

// What hangs where no deadline reaches (here the termination log, a pipe without a reader) ends
// with the worker's time.
func TestTheWatchdog(t *testing.T) {
	binary := build(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary)
	cmd.Env = []string{"KUBE_NODE_READY_TERMINATION_LOG=" + fifo, oneFails}
	if code, took := ends(t, cmd); code != result.ExitFailed || took < 1500*time.Millisecond {
		t.Errorf("exit code %d after %s", code, took)
	}
}

// A file without an end is not read to it.
func TestEndlessFiles(t *testing.T) {
	code, _, stderr := runWorker(t, nil, "--config", "/dev/zero")
	if code != result.ExitConfig || !strings.Contains(stderr, "/dev/zero: has more than") {
		t.Errorf("got %d: %s", code, stderr)
	}
	env := map[string]string{"KUBE_NODE_READY_RESOLV_CONF": "/dev/zero",
		"KUBE_NODE_READY_CONFIG": `{"worker":{"checks":[{"name":"a","type":"dns","dns":{"name":"example.com"}},{"name":"b","type":"http","http":{"url":"https://127.0.0.1:1","caFile":"/dev/zero"}}]}}`}
	code, stdout, _ := runWorker(t, env)
	if code != result.ExitFailed || strings.Count(stdout, "/dev/zero: has more than") != 2 {
		t.Errorf("got %d: %s", code, stdout)
	}
}

// A command of a check has the signals that every program has: one that writes into a closed pipe
// ends by SIGPIPE.
func TestCommandsHaveTheirSignals(t *testing.T) {
	cmd := exec.Command(build(t))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), `KUBE_NODE_READY_CONFIG={"worker":{"checks":[{"name":"a","type":"exec","exec":{"command":
		["/bin/sh","-c","case $(grep SigIgn /proc/self/status) in *[13579bdf]???) exit 1;; esac"]}}]}}`}
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
