// Package file is the check type file: a path exists, has the expected kind, and can be written.
package file

import (
	"context"
	"io/fs"
	"os"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
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

// Settings checks a path in the worker's file system. To check the node's, mount a volume.
type Settings struct {
	// Path to check.
	Path string `json:"path" required:"the path to look at" format:"clean-path"`
	// Kind of the file that must exist. Default: any.
	Kind string `json:"kind,omitempty" enum:"file directory socket device"`
	// Writable also requires that the file can be opened for writing or, in a directory, that a file can be created and
	// written.
	Writable bool `json:"writable,omitempty"`
}

// Validate checks the rules that concern more than one setting.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	if s.Writable && (s.Kind == KindSocket || s.Kind == KindDevice) {
		return field.ErrorList{field.Forbidden(p.Child("writable"), "works only for files and directories; remove it")}
	}
	return nil
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }

// New prepares the check. It ignores its context, since no system call on a file can be interrupted; package run
// abandons it at its timeout.
func (s *Settings) New(environment.Pod) check.Func {
	return func(context.Context) check.Finding { return inspect(ptr.Deref(s, Settings{})) }
}

func inspect(f Settings) check.Finding {
	info, err := os.Stat(f.Path)
	if err != nil {
		return neterror.FileFinding(f.Path, err)
	}
	kind := kindOf(info.Mode())
	if f.Kind != "" && f.Kind != kind {
		return check.Fail(check.ReasonWrongKind, "%s is a %s, expected a %s", f.Path, kind, f.Kind)
	}
	if !f.Writable {
		return check.Pass("%s exists (%s)", f.Path, kind)
	}
	if info.IsDir() {
		err = writeIn(f.Path)
	} else {
		err = openForWriting(f.Path)
	}
	if err != nil {
		return neterror.WriteFinding(f.Path, err)
	}
	return check.Pass("%s is writable (%s)", f.Path, kind)
}

// writeIn writes a byte to a new file in the directory, and removes it.
func writeIn(directory string) error {
	t, err := os.CreateTemp(directory, ".kube-node-ready-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(t.Name()) }()
	if _, err := t.Write([]byte{0}); err != nil {
		_ = t.Close()
		return err
	}
	return t.Close()
}

// openForWriting opens the file without changing it.
func openForWriting(path string) error {
	t, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	return t.Close()
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return KindFile
	case mode.IsDir():
		return KindDirectory
	case mode&fs.ModeSocket != 0:
		return KindSocket
	case mode&fs.ModeDevice != 0:
		return KindDevice
	}
	return "special file"
}
