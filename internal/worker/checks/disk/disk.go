// Package disk is the check type disk: a file system has room and is quick enough to write.
package disk

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
)

const (
	// writes is how many times the latency is measured; the median tells.
	writes = 5
	// blockSize of one write.
	blockSize = 4096
)

// New prepares the check. A system call on a dead disk cannot be interrupted; package run
// leaves it behind then.
func (s *Settings) New(environment.Pod) check.Func {
	return func(ctx context.Context) check.Finding { return look(ctx, ptr.Deref(s, Settings{})) }
}

func look(ctx context.Context, d Settings) check.Finding {
	var st unix.Statfs_t
	if err := unix.Statfs(d.Path, &st); err != nil {
		return neterror.FileFinding(d.Path, err)
	}
	facts, failure := space(d, usage{
		blockSize: uint64(st.Bsize), blocks: st.Blocks, free: st.Bfree, available: st.Bavail, files: st.Files, filesFree: st.Ffree,
	})
	if failure != nil {
		return *failure
	}
	if d.MaxWriteLatencyMs > 0 {
		fact, failure := latency(ctx, d)
		if failure != nil {
			return *failure
		}
		facts = append(facts, fact)
	}
	return check.Pass("%s: %s", d.Path, strings.Join(facts, ", "))
}

// usage of a file system, as in statfs(2).
type usage struct {
	blockSize, blocks, free, available, files, filesFree uint64
}

// percentFree is the share that unprivileged users can still take of what they can have at
// all, as df(1) counts it: what is reserved for root is neither used nor free.
func (u usage) percentFree() float64 {
	total := u.blocks - u.free + u.available
	if total == 0 {
		return 0
	}
	return 100 * float64(u.available) / float64(total)
}

// space compares the free space and inodes with what is asked for.
func space(d Settings, u usage) (facts []string, failure *check.Finding) {
	fail := func(reason check.Reason, format string, args ...any) ([]string, *check.Finding) {
		return nil, check.Failure(reason, "%s "+format, append([]any{d.Path}, args...)...)
	}
	available := u.available * u.blockSize
	if d.MinFreeBytes > 0 {
		if available < uint64(d.MinFreeBytes) {
			return fail(check.ReasonLowSpace, "has %s free, expected at least %s", size(available), size(uint64(d.MinFreeBytes)))
		}
		facts = append(facts, size(available)+" free")
	}
	if d.MinFreePercent > 0 {
		if u.percentFree() < float64(d.MinFreePercent) {
			return fail(check.ReasonLowSpace, "has %.1f%% free, expected at least %d%%", u.percentFree(), d.MinFreePercent)
		}
		facts = append(facts, fmt.Sprintf("%.1f%% free", u.percentFree()))
	}
	if d.MinFreeInodesPercent > 0 {
		if u.files == 0 { // btrfs and others make inodes as they need them
			return append(facts, "inodes without limit"), nil
		}
		percent := 100 * float64(u.filesFree) / float64(u.files)
		if percent < float64(d.MinFreeInodesPercent) {
			return fail(check.ReasonLowInodes, "has %.1f%% of its inodes free, expected at least %d%%", percent, d.MinFreeInodesPercent)
		}
		facts = append(facts, fmt.Sprintf("%.1f%% of inodes free", percent))
	}
	return facts, nil
}

// latency writes and syncs a small file a few times.
func latency(ctx context.Context, d Settings) (string, *check.Finding) {
	took := make([]time.Duration, 0, writes)
	for range writes {
		if ctx.Err() != nil {
			return "", check.Failure(check.ReasonTimeout, "%s: %d of %d writes ended in time", d.Path, len(took), writes)
		}
		t, err := write(d.Path)
		if err != nil {
			f := neterror.WriteFinding(d.Path, err)
			return "", &f
		}
		took = append(took, t)
	}
	if f := judgeLatency(d, took); f != nil {
		return "", f
	}
	return fmt.Sprintf("%s to write and sync", round(took[len(took)/2])), nil
}

// judgeLatency sorts what the writes took and goes by the median, which one disturbance does
// not move.
func judgeLatency(d Settings, took []time.Duration) *check.Finding {
	slices.Sort(took)
	median, allowed := took[len(took)/2], time.Duration(d.MaxWriteLatencyMs)*time.Millisecond
	if median <= allowed {
		return nil
	}
	return check.Failure(check.ReasonSlowDisk, "%s takes %s (median of %d, slowest %s) to write and sync %d bytes, at most %s are allowed",
		d.Path, round(median), len(took), round(took[len(took)-1]), blockSize, allowed)
}

// write makes, writes, syncs and removes one file, and times the write and the sync.
func write(directory string) (time.Duration, error) {
	f, err := os.CreateTemp(directory, ".kube-node-ready-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	defer func() { _ = f.Close() }()
	block := make([]byte, blockSize)
	_, _ = rand.Read(block) // never fails; random, so that no file system saves itself the write
	start := time.Now()
	if _, err := f.Write(block); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// size in the binary units that Kubernetes quantities use.
func size(n uint64) string {
	for _, unit := range []struct {
		name  string
		bytes uint64
	}{{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}} {
		if n >= unit.bytes {
			return fmt.Sprintf("%.1f%s", float64(n)/float64(unit.bytes), unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
