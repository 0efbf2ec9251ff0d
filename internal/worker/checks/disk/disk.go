// Package disk is the check type disk: a file system has space, and writes are fast enough.
package disk

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"math/bits"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
)

// Settings checks the file system that holds a path.
type Settings struct {
	// Path of a directory.
	Path string `json:"path" required:"a directory on the file system to look at" format:"clean-path"`
	// MinFreeBytes is the free space that unprivileged users must have. Default 0: not checked.
	MinFreeBytes int64 `json:"minFreeBytes,omitempty" minimum:"0"`
	// MinFreePercent is the free share of the space, as df(1) counts it. Default 0: not checked.
	MinFreePercent int32 `json:"minFreePercent,omitempty" minimum:"0" maximum:"100"`
	// MinFreeInodesPercent is the free share of the inodes. Default 0: not checked.
	MinFreeInodesPercent int32 `json:"minFreeInodesPercent,omitempty" minimum:"0" maximum:"100"`
	// MaxWriteLatencyMs is how long it may take to write 4 KiB to a new file and sync it to the disk, as the median of
	// five writes. Default 0: nothing is written.
	MaxWriteLatencyMs int32 `json:"maxWriteLatencyMs,omitempty" minimum:"0" maximum:"600000"`
}

// Validate checks the rules that concern more than one setting.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	if s.Path != "" && *s == (Settings{Path: s.Path}) {
		return field.ErrorList{field.Required(p, "set minFreeBytes, minFreePercent, minFreeInodesPercent or "+
			"maxWriteLatencyMs; without any, nothing would be checked")}
	}
	return nil
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }

const (
	// writes is how often the latency is measured; the median counts.
	writes = 5
	// blockSize of one write.
	blockSize = 4096
)

// New prepares the check. Package run abandons it if a system call hangs on a dead disk.
func (s *Settings) New(environment.Pod) check.Func {
	return func(ctx context.Context) check.Finding { return inspect(ctx, ptr.Deref(s, Settings{})) }
}

func inspect(ctx context.Context, d Settings) check.Finding {
	var st unix.Statfs_t
	if err := unix.Statfs(d.Path, &st); err != nil {
		return neterror.FileFinding(d.Path, err)
	}
	facts, failure := space(d, &st)
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

// percentFree is the share of the space that unprivileged users can still use, as df(1) counts it: what is reserved for
// root is neither used nor free.
func percentFree(st *unix.Statfs_t) float64 {
	return 100 * float64(st.Bavail) / float64(max(1, st.Blocks-st.Bfree+st.Bavail))
}

// space compares the free space and inodes with the settings.
func space(d Settings, st *unix.Statfs_t) (facts []string, failure *check.Finding) {
	fail := func(reason check.Reason, format string, args ...any) ([]string, *check.Finding) {
		return nil, check.Failure(reason, "%s "+format, append([]any{d.Path}, args...)...)
	}
	if (d.MinFreeBytes > 0 || d.MinFreePercent > 0) && (st.Blocks == 0 || st.Bsize == 0 || st.Bfree > st.Blocks) {
		return fail(check.ReasonUnknown, "is on a file system that does not report its size, such as a tmpfs without a "+
			"limit or FUSE: remove minFreeBytes and minFreePercent")
	}
	available := st.Bavail * uint64(st.Bsize)
	if overflow, _ := bits.Mul64(st.Bavail, uint64(st.Bsize)); overflow > 0 {
		available = math.MaxUint64
	}
	if d.MinFreeBytes > 0 {
		if available < uint64(d.MinFreeBytes) {
			return fail(check.ReasonLowSpace, "has %s free, expected at least %s", size(available), size(uint64(d.MinFreeBytes)))
		}
		facts = append(facts, size(available)+" free")
	}
	if d.MinFreePercent > 0 {
		percent := percentFree(st)
		if percent < float64(d.MinFreePercent) {
			return fail(check.ReasonLowSpace, "has %.1f%% free, expected at least %d%%", percent, d.MinFreePercent)
		}
		facts = append(facts, fmt.Sprintf("%.1f%% free", percent))
	}
	if d.MinFreeInodesPercent > 0 {
		if st.Files == 0 { // btrfs and others create inodes as needed
			return append(facts, "inodes without limit"), nil
		}
		percent := 100 * float64(st.Ffree) / float64(st.Files)
		if percent < float64(d.MinFreeInodesPercent) {
			return fail(check.ReasonLowInodes, "has %.1f%% of its inodes free, expected at least %d%%",
				percent, d.MinFreeInodesPercent)
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
	if f := evaluateLatency(d, took); f != nil {
		return "", f
	}
	return fmt.Sprintf("%s to write and sync", round(took[len(took)/2])), nil
}

// evaluateLatency sorts the latencies and evaluates the median, which one outlier does not change.
func evaluateLatency(d Settings, took []time.Duration) *check.Finding {
	slices.Sort(took)
	median, allowed := took[len(took)/2], time.Duration(d.MaxWriteLatencyMs)*time.Millisecond
	if median <= allowed {
		return nil
	}
	return check.Failure(check.ReasonSlowDisk,
		"%s takes %s (median of %d, slowest %s) to write and sync %d bytes, at most %s are allowed",
		d.Path, round(median), len(took), round(took[len(took)-1]), blockSize, allowed)
}

// write creates and removes a file, and returns how long writing and syncing took.
func write(directory string) (time.Duration, error) {
	f, err := os.CreateTemp(directory, ".kube-node-ready-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	defer func() { _ = f.Close() }()
	block := make([]byte, blockSize)
	_, _ = rand.Read(block) // never fails; random, so that no file system optimises the write away
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
