//go:build linux

package realnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// loans is what the cluster changed on the machine outside its own folder and names, and must
// give back. It is on disk before the change is made, so that a crash cannot lose it.
type loans struct {
	// Sysctls are the values, from before, of the settings that every kubelet changes.
	Sysctls map[string]string `json:"sysctls"`
	// Folders were made because something must be mounted on them; outermost first.
	Folders []string `json:"folders"`
}

// kubeletSysctls are what the kubelet sets on its machine, which these nodes share
// (kubernetes, pkg/kubelet/cm: setupKernelTunables).
var kubeletSysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

const loansFile = "loans.json"

// mountPoints are folders with fixed names in the kubelet and the CNI library. Each node mounts
// its own there, for which the machine must have them.
var mountPoints = []string{"/var/lib/kubelet", "/var/lib/cni"}

// borrow notes what is about to change on the machine, and makes the folders.
func (c *Cluster) borrow() error {
	l := loans{Sysctls: map[string]string{}}
	for _, name := range kubeletSysctls {
		value, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			return err
		}
		l.Sysctls[name] = strings.TrimSpace(string(value))
	}
	for _, folder := range mountPoints {
		if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
			l.Folders = append(l.Folders, folder)
		}
	}
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.dir, loansFile), text, 0o600); err != nil {
		return err
	}
	for _, folder := range l.Folders {
		if err := os.Mkdir(folder, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Sweep removes every trace of a cluster of real nodes, from any run and however that run ended. It removes the
// processes in our namespaces, the namespaces, links and routes, cgroups and the state folder. It also restores the
// machine's settings that kubelets changed. It is not an error if nothing is there.
func Sweep(ctx context.Context, dir string) error {
	var errs []error
	errs = append(errs, sweepProcesses(ctx))
	for _, name := range namespaces() {
		if _, err := run(ctx, "ip", "netns", "del", name); err != nil {
			errs = append(errs, err)
		}
	}
	if _, err := os.Stat("/sys/class/net/" + hostLink); err == nil {
		// Its addresses and routes, the pods' included, go with it.
		_, err := run(ctx, "ip", "link", "del", hostLink)
		errs = append(errs, err)
	}
	errs = append(errs, removeCgroup(cgroupParent), giveBack(dir), os.RemoveAll(dir))
	return errors.Join(errs...)
}

// Leftovers lists what is on the machine of any cluster of real nodes; empty after Sweep.
func Leftovers(dir string) []string {
	var found []string
	for _, name := range namespaces() {
		found = append(found, "network namespace "+name)
	}
	links, _ := filepath.Glob("/sys/class/net/" + prefix + "*")
	found = append(found, links...)
	for _, root := range cgroupRoots() {
		if path := root + cgroupParent; exists(path) {
			found = append(found, "cgroup "+path)
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, netnsPath+prefix) || strings.Contains(line, dir) {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	for _, p := range processes() {
		if strings.Contains(p.commandLine, dir+"/") && p.pid != os.Getpid() {
			found = append(found, fmt.Sprintf("process %d %s", p.pid, p.commandLine))
		}
	}
	if exists(dir) {
		found = append(found, "folder "+dir)
	}
	return found
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func namespaces() []string {
	var names []string
	paths, _ := filepath.Glob(netnsPath + prefix + "*")
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

// sweepProcesses kills what runs in our network namespaces: nodes' first processes, with which
// everything on a node dies, also pods, whose network namespaces have no name here.
func sweepProcesses(ctx context.Context) error {
	for range 50 {
		var alive []int
		for _, name := range namespaces() {
			pids, err := run(ctx, "ip", "netns", "pids", name)
			if err != nil {
				return err
			}
			for pid := range strings.FieldsSeq(pids) {
				if number, err := strconv.Atoi(pid); err == nil {
					alive = append(alive, number)
				}
			}
		}
		if len(alive) == 0 {
			return nil
		}
		for _, pid := range alive {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("processes in the nodes' namespaces do not die")
}

// giveBack undoes what borrow noted.
func giveBack(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, loansFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var l loans
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("%s: %w", loansFile, err)
	}
	var errs []error
	for name, value := range l.Sysctls {
		errs = append(errs, os.WriteFile("/proc/sys/"+name, []byte(value), 0o600))
	}
	for _, folder := range slices.Backward(l.Folders) {
		if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

type processInfo struct {
	pid         int
	commandLine string
}

func processes() []processInfo {
	var all []processInfo
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		all = append(all, processInfo{pid: pid, commandLine: strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))})
	}
	return all
}
