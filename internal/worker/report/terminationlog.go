package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

// DefaultTerminationLog is the kubelet's default terminationMessagePath.
const DefaultTerminationLog = "/dev/termination-log"

// WriteTerminationLog leaves the report at path, where the kubelet reads it. At the default path, which
// an empty one stands for, it does so only if the kubelet has made the file: outside a pod there is
// nobody to read it.
func WriteTerminationLog(path string, report result.Report) error {
	flags := os.O_WRONLY | os.O_TRUNC
	if path == "" {
		path = DefaultTerminationLog
	} else {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		if path == DefaultTerminationLog && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	_, err = f.Write(report.Encode())
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	return nil
}
