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

// peakRSS runs the worker and reads its peak memory as it exits. What wait4(2) tells would not
// do: the kernel carries the memory of the process that starts another over into it.
func peakRSS(worker string, s *surroundings) (int64, error) {
	runtime.LockOSThread() // a traced process belongs to a thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command(worker, "verify")
	cmd.Env = s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid := cmd.Process.Pid
	defer func() { _ = cmd.Process.Release() }()
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil { // stopped by its exec
		return 0, err
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACEEXIT|unix.PTRACE_O_EXITKILL); err != nil {
		return 0, err
	}
	var peak int64
	for signal := 0; ; {
		if err := unix.PtraceCont(pid, signal); err != nil {
			return 0, err
		}
		if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil {
			return 0, err
		}
		switch {
		case status.Exited() && status.ExitStatus() == 0 && peak > 0:
			return peak, nil
		case status.Exited() || status.Signaled():
			return 0, errors.New("the traced worker did not end well")
		case status.TrapCause() == unix.PTRACE_EVENT_EXIT:
			signal = 0
			var err error
			if peak, err = highWaterMark(pid); err != nil {
				return 0, err
			}
		default:
			signal = int(status.StopSignal())
		}
	}
}

// highWaterMark reads VmHWM, the peak of a process's resident memory, from proc(5).
func highWaterMark(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(data) {
		var kibibytes int64
		if n, _ := fmt.Sscanf(string(line), "VmHWM: %d kB", &kibibytes); n == 1 {
			return kibibytes << 10, nil
		}
	}
	return 0, errors.New("the kernel does not tell the worker's peak memory")
}
