package disk

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

func TestARealDisk(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		settings Settings
		reason   check.Reason
		says     string
	}{
		{"room", Settings{Path: dir, MinFreeBytes: 1, MinFreePercent: 1}, check.NoReason, "% free"},
		{"quick", Settings{Path: dir, MaxWriteLatencyMs: 60_000}, check.NoReason, "to write and sync"},
		{"no room", Settings{Path: dir, MinFreeBytes: 1 << 60}, check.ReasonLowSpace, "expected at least 1048576.0Ti"},
		{"missing", Settings{Path: dir + "/x", MinFreePercent: 1}, check.ReasonNotFound, "does not exist"},
		{"no directory", Settings{Path: file, MaxWriteLatencyMs: 1000}, check.ReasonCannotLook, "cannot be written"},
		{"not writable", Settings{Path: "/proc", MaxWriteLatencyMs: 1000}, check.ReasonNotFound, "cannot be written"},
	} {
		f := c.settings.New(environment.Pod{})(context.Background())
		if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s: got %q: %q, want %q with %q", c.name, f.Reason, f.Message, c.reason, c.says)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the check left something behind: %v", entries)
	}
}

func TestSpace(t *testing.T) {
	// 1000 blocks, of which 100 are free, half of them reserved for root.
	u := unix.Statfs_t{Bsize: 4096, Blocks: 1000, Bfree: 100, Bavail: 50, Files: 200, Ffree: 20}
	for _, c := range []struct {
		settings Settings
		usage    unix.Statfs_t
		reason   check.Reason
		says     string
	}{
		{Settings{MinFreeBytes: 50 * 4096, MinFreePercent: 5, MinFreeInodesPercent: 10}, u, check.NoReason, "200.0Ki free"},
		{Settings{MinFreeBytes: 50*4096 + 1}, u, check.ReasonLowSpace, "has 200.0Ki free"},
		{Settings{MinFreePercent: 6}, u, check.ReasonLowSpace, "has 5.3% free, expected at least 6%"}, // 50 of 950
		{Settings{MinFreeInodesPercent: 11}, u, check.ReasonLowInodes, "10.0% of its inodes free"},
		{Settings{MinFreeInodesPercent: 11}, unix.Statfs_t{Blocks: 1, Bavail: 1}, check.NoReason, "inodes without limit"},
		{Settings{MinFreePercent: 1}, unix.Statfs_t{Bsize: 4096, Blocks: 1000}, check.ReasonLowSpace, "0.0% free"},
		// File systems without a size: a tmpfs with size=0, gVisor, FUSE.
		{Settings{MinFreePercent: 1}, unix.Statfs_t{}, check.ReasonUnknown, "does not report its size"},
		{Settings{MinFreeBytes: 1}, unix.Statfs_t{Bsize: 4096}, check.ReasonUnknown, "does not report its size"},
		{Settings{MinFreeBytes: 1}, unix.Statfs_t{Blocks: 1000, Bfree: 100, Bavail: 100}, check.ReasonUnknown, "does not report its size"},
		{Settings{MinFreePercent: 1}, unix.Statfs_t{Bsize: 4096, Blocks: 1, Bfree: math.MaxUint64, Bavail: math.MaxUint64}, check.ReasonUnknown,
			"does not report its size"},
		{Settings{MinFreeInodesPercent: 1}, unix.Statfs_t{}, check.NoReason, "inodes without limit"},
		// Space without limit.
		{Settings{MinFreeBytes: 1 << 40, MinFreePercent: 50},
			unix.Statfs_t{Bsize: 4096, Blocks: math.MaxUint64 / 2, Bfree: math.MaxUint64 / 2, Bavail: math.MaxUint64 / 2}, check.NoReason, "100.0% free"},
	} {
		facts, failure := space(c.settings, &c.usage)
		got := check.Finding{Message: strings.Join(facts, ", ")}
		if failure != nil {
			got = *failure
		}
		if got.Reason != c.reason || !strings.Contains(got.Message, c.says) || (got.Outcome == check.Inconclusive) != (c.reason == check.ReasonUnknown) {
			t.Errorf("%+v: got %+v, want %q with %q", c.settings, got, c.reason, c.says)
		}
	}
}

// TestFullAndSlow fills a real file system, which takes root to mount.
func TestFullAndSlow(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if f := (&Settings{Path: t.TempDir(), MaxWriteLatencyMs: 1000}).New(environment.Pod{})(ctx); f.Reason != check.ReasonTimeout || !strings.Contains(f.Message, "0 of 5 writes") {
		t.Errorf("got %+v", f)
	}
	missing.Root(t, "mounting")
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=16k", "none", dir).CombinedOutput(); err != nil {
		missing.Skip(t, fmt.Sprintf("the right to mount: %s", out), "run the test outside of a container")
	}
	defer func() { _ = exec.Command("umount", dir).Run() }()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 16<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := (&Settings{Path: dir, MaxWriteLatencyMs: 60_000}).New(environment.Pod{})(context.Background()); f.Reason != check.ReasonNoSpace {
		t.Errorf("got %+v", f)
	}
	if f := (&Settings{Path: dir, MinFreePercent: 1}).New(environment.Pod{})(context.Background()); f.Reason != check.ReasonLowSpace {
		t.Errorf("got %+v", f)
	}
}

// A tmpfs with size=0 has no limit, and statfs(2) reports 0 blocks of it. It takes writes, so that the latency counts.
func TestAFileSystemWithoutASize(t *testing.T) {
	missing.Root(t, "mounting")
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=0,nr_inodes=0", "none", dir).CombinedOutput(); err != nil {
		missing.Skip(t, fmt.Sprintf("the right to mount: %s", out), "run the test outside of a container")
	}
	defer func() { _ = exec.Command("umount", dir).Run() }()
	for _, c := range []struct {
		settings Settings
		outcome  check.Outcome
	}{
		{Settings{Path: dir, MinFreeBytes: 1}, check.Inconclusive},
		{Settings{Path: dir, MinFreePercent: 1}, check.Inconclusive},
		{Settings{Path: dir, MinFreePercent: 1, MaxWriteLatencyMs: 60_000}, check.Inconclusive},
		{Settings{Path: dir, MinFreeInodesPercent: 1, MaxWriteLatencyMs: 60_000}, check.Passed},
	} {
		if f := c.settings.New(environment.Pod{})(context.Background()); f.Outcome != c.outcome {
			t.Errorf("%+v: got %+v", c.settings, f)
		}
	}
}

func TestSlowDisk(t *testing.T) {
	if f := evaluateLatency(Settings{Path: "/data", MaxWriteLatencyMs: 10}, []time.Duration{time.Second, 11 * time.Millisecond, 1, 12 * time.Millisecond, 2}); f == nil ||
		f.Reason != check.ReasonSlowDisk || !strings.Contains(f.Message, "/data takes 11ms (median of 5, slowest 1s)") {
		t.Errorf("got %+v", f)
	}
	if f := evaluateLatency(Settings{MaxWriteLatencyMs: 10}, []time.Duration{time.Second, 10 * time.Millisecond, 1, time.Second, 2}); f != nil {
		t.Errorf("got %+v", f)
	}
}
