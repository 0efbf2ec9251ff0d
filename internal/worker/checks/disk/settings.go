package disk

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Settings looks at the file system that holds a path.
type Settings struct {
	// Path of a directory.
	Path string `json:"path" required:"a directory on the file system to look at" format:"clean-path"`
	// MinFreeBytes is the space that unprivileged users must still have. Default 0: not looked at.
	MinFreeBytes int64 `json:"minFreeBytes,omitempty" minimum:"0"`
	// MinFreePercent is the share of the space, as df(1) counts it. Default 0: not looked at.
	MinFreePercent int32 `json:"minFreePercent,omitempty" minimum:"0" maximum:"100"`
	// MinFreeInodesPercent is the share of the inodes. Default 0: not looked at.
	MinFreeInodesPercent int32 `json:"minFreeInodesPercent,omitempty" minimum:"0" maximum:"100"`
	// MaxWriteLatencyMs is how long writing 4 KiB to a new file and syncing it to the disk may
	// take, the median of five. Default 0: nothing is written.
	MaxWriteLatencyMs int32 `json:"maxWriteLatencyMs,omitempty" minimum:"0" maximum:"600000"`
}

// Validate reports what no limit of a single setting can.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	if s.Path != "" && s.MinFreeBytes == 0 && s.MinFreePercent == 0 && s.MinFreeInodesPercent == 0 && s.MaxWriteLatencyMs == 0 {
		return field.ErrorList{field.Required(p, "set minFreeBytes, minFreePercent, minFreeInodesPercent or maxWriteLatencyMs; "+
			"without any, nothing would be checked")}
	}
	return nil
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }
