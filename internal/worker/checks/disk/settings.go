package disk

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// Settings looks at the file system that holds a path.
type Settings struct {
	// Path of a directory, absolute.
	Path string `json:"path,omitempty"`
	// MinFreeBytes is the space that unprivileged users must still have. Default 0: not looked at.
	MinFreeBytes int64 `json:"minFreeBytes,omitempty"`
	// MinFreePercent is the share of the space, as df(1) counts it. Default 0: not looked at.
	MinFreePercent int32 `json:"minFreePercent,omitempty"`
	// MinFreeInodesPercent is the share of the inodes. Default 0: not looked at.
	MinFreeInodesPercent int32 `json:"minFreeInodesPercent,omitempty"`
	// MaxWriteLatencyMs is how long writing 4 KiB to a new file and syncing it to the disk may
	// take, the median of five. Default 0: nothing is written.
	MaxWriteLatencyMs int32 `json:"maxWriteLatencyMs,omitempty"`
}

// Validate reports every fault of the settings.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	if s == nil || s.Path == "" {
		return field.ErrorList{field.Required(p.Child("path"), "a directory on the file system to look at")}
	}
	faults := check.Absolute(p.Child("path"), s.Path)
	if s.MinFreeBytes < 0 {
		faults = append(faults, field.Invalid(p.Child("minFreeBytes"), s.MinFreeBytes, "must be at least 0"))
	}
	faults = append(faults, check.InRange(p.Child("minFreePercent"), s.MinFreePercent, 0, 100)...)
	faults = append(faults, check.InRange(p.Child("minFreeInodesPercent"), s.MinFreeInodesPercent, 0, 100)...)
	faults = append(faults, check.InRange(p.Child("maxWriteLatencyMs"), s.MaxWriteLatencyMs, 0, 600_000)...)
	if s.MinFreeBytes == 0 && s.MinFreePercent == 0 && s.MinFreeInodesPercent == 0 && s.MaxWriteLatencyMs == 0 {
		faults = append(faults, field.Required(p, "set minFreeBytes, minFreePercent, minFreeInodesPercent or maxWriteLatencyMs; without any, nothing would be checked"))
	}
	return faults
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }
