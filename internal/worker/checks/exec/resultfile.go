package exec

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// maxCodeLine bounds the first line of a result file: an exit code and its line break.
const maxCodeLine = 16

// readResult reads what an init container found: init containers end before the worker
// starts, so a file that is not there, or cannot be understood, will not become any better.
func readResult(e Settings) check.Finding {
	code, output, err := parseResultFile(e.ResultFile, e.maxOutput())
	if err != nil {
		return check.Fail(check.ReasonUnknown, "the result file %s of an init container %v", e.ResultFile, err)
	}
	return judge("the init container that wrote "+e.ResultFile, code, output)
}

func parseResultFile(path string, most int) (code int, output string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+maxCodeLine+1))
	if err != nil {
		return 0, "", fmt.Errorf("cannot be read: %w", err)
	}
	return parseResult(data, most)
}

// parseResult splits the exit code on the first line from the output after it.
func parseResult(data []byte, most int) (code int, output string, err error) {
	first, rest, _ := strings.Cut(string(data), "\n")
	first = strings.TrimSpace(first)
	code, err = strconv.Atoi(first)
	if err != nil || code < 0 || code > 255 || len(first) > maxCodeLine {
		return 0, "", errors.New("must begin with a line that holds an exit code from 0 to 255")
	}
	c := capped{most: most}
	_, _ = c.Write([]byte(rest))
	return code, c.String(), nil
}
