package neterror

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// ofFile is why an operation on a file failed. The phrase completes a sentence that
// begins with the path.
func ofFile(err error) (check.Reason, string) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return check.ReasonNotFound, "does not exist"
	case errors.Is(err, syscall.EROFS):
		return check.ReasonReadOnly, "is on a read-only file system (mounted so, or turned so by an error of the disk)"
	case errors.Is(err, syscall.EIO):
		return check.ReasonInputOutput, "is on a device that reports input/output errors"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return check.ReasonNoSpace, "is on a full file system: " + errno(err)
	case errors.Is(err, fs.ErrPermission):
		return check.ReasonPermissionDenied, "does not let the worker's user in: " + errno(err)
	}
	return check.ReasonCannotLook, "cannot be examined: " + errno(err)
}

// FileFinding is why a path could not be examined, as a whole sentence.
func FileFinding(path string, err error) check.Finding {
	reason, phrase := ofFile(err)
	return check.Fail(reason, "%s %s", path, phrase)
}

// WriteFinding is why a path could not be written, as a whole sentence.
func WriteFinding(path string, err error) check.Finding {
	reason, phrase := ofFile(err)
	if reason == check.ReasonPermissionDenied {
		reason = check.ReasonNotWritable
	}
	return check.Fail(reason, "%s cannot be written: it %s", path, phrase)
}
