// Package file is the check type file: a path exists, is what it should be, and can be written.
package file

import (
	"context"
	"io/fs"
	"os"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
)

// New prepares the check. It does not notice its context's end, because no system call on a
// file can be interrupted; package run leaves it behind then.
func (s *Settings) New(environment.Pod) check.Func {
	return func(context.Context) check.Finding { return look(ptr.Deref(s, Settings{})) }
}

func look(f Settings) check.Finding {
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

// writeIn makes a file in the directory, writes a byte to it and removes it.
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
