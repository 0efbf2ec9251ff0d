package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func start(t *testing.T, g *Group, script string, env ...string) (*Process, string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	p, err := g.Start(Spec{Path: "/bin/sh", Args: []string{"-c", script}, Env: env, Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	return p, out.Name()
}

// content waits for a file to have one.
func content(t *testing.T, path string) string {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if text, err := os.ReadFile(path); err != nil || len(text) > 0 || time.Now().After(end) {
			return strings.TrimSpace(string(text))
		}
	}
}

// gone waits until a process has ended; one that init has not reaped yet counts as ended.
func gone(pid int) bool {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if syscall.Kill(pid, 0) != nil || err == nil && strings.Contains(string(stat), ") Z ") {
			return true
		}
	}
	return false
}

func TestExitCodeAndEnvironment(t *testing.T) {
	g, err := NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -TERM $$": 143, `[ "$A" = b ] && [ -z "$HOME" ]`: 0} {
		p, _ := start(t, g, script, "A=b")
		<-p.Done()
		if p.ExitCode() != want {
			t.Errorf("%s: exit code %d, want %d", script, p.ExitCode(), want)
		}
	}
}

func TestChildrenEndWithTheirProcess(t *testing.T) {
	g, err := NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	p, out := start(t, g, "sleep 60 & echo $!")
	child, err := strconv.Atoi(content(t, out))
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if !gone(child) {
		t.Errorf("child %d outlives its process", child)
	}
}

func TestStop(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	g, err := NewGroup(folder)
	if err != nil {
		t.Fatal(err)
	}
	p, out := start(t, g, "trap '' TERM; echo up; while :; do sleep 1; done")
	content(t, out)
	g.Stop()
	g.Stop()
	if !gone(p.Pid()) {
		t.Errorf("process %d outlives its group", p.Pid())
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder outlives its group: %v", err)
	}
	if _, err := g.Start(Spec{Path: "/bin/sh"}); err == nil {
		t.Error("a stopped group starts processes")
	}
}

func TestTerminate(t *testing.T) {
	g, err := NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	polite, out := start(t, g, "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done")
	content(t, out)
	if polite.Terminate(10 * time.Second); polite.ExitCode() != 5 {
		t.Errorf("exit code %d, want 5", polite.ExitCode())
	}
	deaf, out := start(t, g, "trap '' TERM; echo up; while :; do sleep 0.05; done")
	content(t, out)
	if deaf.Terminate(100 * time.Millisecond); deaf.ExitCode() != 137 {
		t.Errorf("exit code %d, want 137", deaf.ExitCode())
	}
}

func TestStartRefusesWhatIsNoProgram(t *testing.T) {
	g, err := NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	for path, want := range map[string]error{"/does/not/exist": fs.ErrNotExist, t.TempDir(): fs.ErrPermission} {
		if _, err := g.Start(Spec{Path: path}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}
