// Package input reads files of limited size.
package input

import (
	"fmt"
	"io"
	"os"
)

// ReadFile reads a file of at most so many bytes. It does not rely on the file's size: a device or a pipe has none, and
// may have no end.
func ReadFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s: has more than %d bytes", path, most)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}
