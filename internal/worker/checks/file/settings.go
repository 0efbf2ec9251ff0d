package file

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The kinds.
const (
	// KindFile is a regular file.
	KindFile = "file"
	// KindDirectory is a directory.
	KindDirectory = "directory"
	// KindSocket is a Unix socket.
	KindSocket = "socket"
	// KindDevice is a block or character device.
	KindDevice = "device"
)

// Settings looks at a path in the worker's file system (a volume shows the node's).
type Settings struct {
	// Path to look at.
	Path string `json:"path" required:"the path to look at" format:"clean-path"`
	// Kind of what must be there. Default: any.
	Kind string `json:"kind,omitempty" enum:"file directory socket device"`
	// Writable also asks that the file can be opened for writing, or, in a directory, that a
	// file can be made and written.
	Writable bool `json:"writable,omitempty"`
}

// Validate reports what no limit of a single setting can.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	if s.Writable && (s.Kind == KindSocket || s.Kind == KindDevice) {
		return field.ErrorList{field.Forbidden(p.Child("writable"), "is only checked of files and directories; remove it")}
	}
	return nil
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }
