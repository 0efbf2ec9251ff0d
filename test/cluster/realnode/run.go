//go:build linux

package realnode

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// run executes a program to its end and returns its standard output. The error of a failed
// run holds the command and what it wrote to standard error.
func run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()+" "+stdout.String()))
	}
	return stdout.String(), nil
}

// runAll executes command lines (split at blanks) in order and stops at the first that fails.
func runAll(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		fields := strings.Fields(line)
		if _, err := run(ctx, fields[0], fields[1:]...); err != nil {
			return err
		}
	}
	return nil
}
