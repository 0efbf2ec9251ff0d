package file

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
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
	// Path, absolute.
	Path string `json:"path,omitempty"`
	// Kind is file, directory, socket or device. Default: any.
	Kind string `json:"kind,omitempty"`
	// Writable also asks that the file can be opened for writing, or, in a directory, that a
	// file can be made and written.
	Writable bool `json:"writable,omitempty"`
}

// Validate reports every fault of the settings.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	if s == nil || s.Path == "" {
		return field.ErrorList{field.Required(p.Child("path"), "the path to look at")}
	}
	faults := check.Absolute(p.Child("path"), s.Path)
	faults = append(faults, check.OneOf(p.Child("kind"), s.Kind, []string{KindFile, KindDirectory, KindSocket, KindDevice})...)
	if s.Writable && (s.Kind == KindSocket || s.Kind == KindDevice) {
		faults = append(faults, field.Forbidden(p.Child("writable"), "is only checked of files and directories; remove it"))
	}
	return faults
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }
