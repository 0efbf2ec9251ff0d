//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/report"
)

// terminal opens a pseudo-terminal: what is written to the second comes out of the first.
func terminal(t *testing.T) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	return screen, tty
}

func TestColourOnlyOnATerminal(t *testing.T) {
	r := result.Report{Outcome: result.Passed, Checks: []result.Check{{Name: "a", Outcome: result.Passed}}}
	shown := func() string {
		screen, tty := terminal(t)
		if err := printReport(tty, outputText, r); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 4096)
		time.Sleep(10 * time.Millisecond)
		n, err := screen.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
	t.Setenv("NO_COLOR", "")
	if s := shown(); !strings.Contains(s, "\x1b[32m✓\x1b[0m") {
		t.Errorf("on a terminal: %q", s)
	}
	t.Setenv("NO_COLOR", "1")
	if s := shown(); strings.Contains(s, "\x1b") || !strings.Contains(s, "✓") {
		t.Errorf("with NO_COLOR: %q", s)
	}
	t.Setenv("NO_COLOR", "")
	var b bytes.Buffer
	if err := printReport(&b, outputText, r); err != nil || strings.Contains(b.String(), "\x1b") {
		t.Errorf("not on a terminal: %q, %v", b.String(), err)
	}
	_, tty := terminal(t)
	if f, err := parseFlags(nil, os.Getenv, report.IsTerminal(tty)); err != nil || f.output != outputText {
		t.Errorf("the default on a terminal is %q, %v", f.output, err)
	}
}
