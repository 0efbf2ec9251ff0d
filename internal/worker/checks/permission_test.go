//go:build linux

package checks_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/disk"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/file"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

// asWorker runs f as the worker's user, on a thread that ends with it.
func asWorker(t *testing.T, f func()) {
	t.Helper()
	missing.Root(t, "another user")
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 1000, 1000, 1000)
		if errno != 0 {
			done <- errno
			return
		}
		f()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Directories such as /run/containerd belong to root and let nobody else in (containerd#8020). Nothing is known then of
// what is below, and every node is like that.
func TestBelowADirectoryThatTheWorkerMayNotEnter(t *testing.T) {
	top := t.TempDir()
	closed, listed, open := filepath.Join(top, "closed"), filepath.Join(top, "listed"), filepath.Join(top, "open")
	for _, dir := range []string{closed + "/state/sub", listed + "/sub", open} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]os.FileMode{filepath.Dir(top): 0o755, top: 0o755, listed: 0o744, open: 0o777} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	link, owned := filepath.Join(open, "link"), filepath.Join(open, "owned")
	if err := os.Symlink(closed+"/state", link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(owned, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		directory  string // that the worker may not enter
	}{
		{"below it", closed + "/state", closed},
		{"what does not exist", closed + "/gone", closed},
		{"two below it", closed + "/state/sub", closed},
		{"below one that may be listed", listed + "/sub", listed},
		{"through a link", link + "/sub", closed},
	} {
		for kind, settings := range map[string]checks.Settings{
			"file": &file.Settings{Path: c.path, Writable: true}, "disk": &disk.Settings{Path: c.path, MinFreePercent: 1},
		} {
			var f check.Finding
			asWorker(t, func() { f = settings.New(environment.Pod{})(t.Context()) })
			says := c.path + " cannot be examined: user 1000 may not enter the directory " + c.directory
			if f.Outcome != check.Inconclusive || f.Reason != check.ReasonUnknown || !strings.HasPrefix(f.Message, says) {
				t.Errorf("%s, %s: got %d, %q: %s", kind, c.name, f.Outcome, f.Reason, f.Message)
			}
		}
	}
	// What a check is asked to prove, it still does.
	for path, want := range map[string]check.Reason{owned: check.ReasonNotWritable, open + "/gone": check.ReasonNotFound, open: check.NoReason} {
		var f check.Finding
		asWorker(t, func() { f = (&file.Settings{Path: path, Writable: true}).New(environment.Pod{})(t.Context()) })
		if f.Reason != want {
			t.Errorf("%s: got %+v", path, f)
		}
	}
}
