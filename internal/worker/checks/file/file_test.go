package file_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/file"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

func TestPaths(t *testing.T) {
	dir := t.TempDir()
	regular := filepath.Join(dir, "file")
	if err := os.WriteFile(regular, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	dangling := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "gone"), dangling); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		settings file.Settings
		reason   check.Reason
		says     string
	}{
		{"exists", file.Settings{Path: regular}, check.NoReason, "exists (file)"},
		{"a file", file.Settings{Path: regular, Kind: "file", Writable: true}, check.NoReason, "is writable (file)"},
		{"a directory", file.Settings{Path: dir, Kind: "directory", Writable: true}, check.NoReason, "is writable (directory)"},
		{"a socket", file.Settings{Path: socket, Kind: "socket"}, check.NoReason, "exists (socket)"},
		{"a device", file.Settings{Path: "/dev/null", Kind: "device"}, check.NoReason, "exists (device)"},
		{"missing", file.Settings{Path: regular + "x"}, check.ReasonNotFound, "does not exist"},
		{"a dangling link", file.Settings{Path: dangling}, check.ReasonNotFound, "does not exist"},
		{"another kind", file.Settings{Path: regular, Kind: "directory"}, check.ReasonWrongKind, "is a file, expected a directory"},
		{"below a file", file.Settings{Path: regular + "/x"}, check.ReasonCannotLook, "not a directory"},
	} {
		f := c.settings.New(environment.Pod{})(context.Background())
		if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s: got %q: %q, want %q with %q", c.name, f.Reason, f.Message, c.reason, c.says)
		}
	}
	if content, _ := os.ReadFile(regular); string(content) != "content" {
		t.Errorf("the check changed the file to %q", content)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 3 {
		t.Errorf("the check left something behind: %v", entries)
	}
}

// TestNotWritable opens a file of sysfs that not even root may write.
func TestNotWritable(t *testing.T) {
	f := (&file.Settings{Path: "/sys/devices/system/cpu/online", Writable: true}).New(environment.Pod{})(context.Background())
	// In a container sysfs is read-only as a whole.
	if f.Reason != check.ReasonNotWritable && f.Reason != check.ReasonReadOnly || !strings.Contains(f.Message, "cannot be written") {
		t.Errorf("got %+v", f)
	}
}

// TestReadOnlyFileSystem mounts one, which takes root.
func TestReadOnlyFileSystem(t *testing.T) {
	missing.Root(t, "mounting")
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "ro", "none", dir).CombinedOutput(); err != nil {
		missing.Skip(t, fmt.Sprintf("the right to mount: %s", out), "run the test outside of a container")
	}
	defer func() { _ = exec.Command("umount", dir).Run() }()
	f := (&file.Settings{Path: dir, Writable: true}).New(environment.Pod{})(context.Background())
	if f.Reason != check.ReasonReadOnly || !strings.Contains(f.Message, "read-only") {
		t.Errorf("got %+v", f)
	}
}
