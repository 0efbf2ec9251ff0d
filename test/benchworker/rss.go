//go:build bench

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// traced runs the worker and reads its peak memory and the bytes that it read, from files and connections, as it exits.
// What wait4(2) tells would not do: the kernel carries the memory of the process that starts another over into it.
func traced(worker string, env []string) (rss, read int64, err error) {
	runtime.LockOSThread() // a traced process belongs to a thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command(worker, "verify")
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	pid := cmd.Process.Pid
	defer func() { _ = cmd.Process.Release() }()
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil { // stopped by its exec
		return 0, 0, err
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACEEXIT|unix.PTRACE_O_EXITKILL); err != nil {
		return 0, 0, err
	}
	for signal := 0; ; {
		if err := unix.PtraceCont(pid, signal); err != nil {
			return 0, 0, err
		}
		if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil {
			return 0, 0, err
		}
		switch {
		case status.Exited() && status.ExitStatus() == 0 && rss > 0:
			return rss, read, nil
		case status.Exited() || status.Signaled():
			return 0, 0, errors.New("the traced worker did not end well")
		case status.TrapCause() == unix.PTRACE_EVENT_EXIT:
			signal = 0
			// proc(5): the peak of the resident memory, and what read(2) and the like returned.
			if rss, err = counter(pid, "status", "VmHWM: %d kB"); err != nil {
				return 0, 0, err
			}
			rss <<= 10
			if read, err = counter(pid, "io", "rchar: %d"); err != nil {
				return 0, 0, err
			}
		default:
			signal = int(status.StopSignal())
		}
	}
}

// counter reads a number from a file of proc(5) about a process.
func counter(pid int, file, format string) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(data) {
		var n int64
		if found, _ := fmt.Sscanf(string(line), format, &n); found == 1 {
			return n, nil
		}
	}
	return 0, fmt.Errorf("the kernel has no %q in /proc/%d/%s", format, pid, file)
}
