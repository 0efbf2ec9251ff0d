//go:build linux

package realnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// cgroupParent holds every node's cgroup, in each hierarchy.
const cgroupParent = "/kube-node-ready"

const cgroupMount = "/sys/fs/cgroup"

// unified reports whether the machine has cgroup v2 alone.
func unified() bool { return exists(cgroupMount + "/cgroup.controllers") }

// cgroupRoots are the mounted hierarchies: one with cgroup v2, one for each controller with v1.
func cgroupRoots() []string {
	if unified() {
		return []string{cgroupMount}
	}
	var roots []string
	entries, _ := os.ReadDir(cgroupMount)
	for _, entry := range entries {
		// Controllers that are mounted together have links to their shared folder.
		if path := filepath.Join(cgroupMount, entry.Name()); entry.IsDir() && exists(path+"/cgroup.procs") {
			roots = append(roots, path)
		}
	}
	return roots
}

// makeCgroup makes a node's cgroup in every hierarchy: the kubelet demands that its root exists.
func makeCgroup(path string) error {
	for _, root := range cgroupRoots() {
		parent := root + cgroupParent
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return err
		}
		if unified() {
			if err := delegate(root); err != nil {
				return err
			}
			if err := delegate(parent); err != nil {
				return err
			}
		} else if filepath.Base(root) == "cpuset" {
			// A cpuset without processors or memory takes no process; a clone inherits them.
			if err := inheritCPUSet(root, parent); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(root+path, 0o755); err != nil {
			return err
		}
		if unified() {
			if err := delegate(root + path); err != nil {
				return err
			}
		}
	}
	return nil
}

// delegate lets a cgroup's children use the controllers that it has itself.
func delegate(path string) error {
	controllers, err := os.ReadFile(path + "/cgroup.controllers")
	if err != nil {
		return err
	}
	for controller := range strings.FieldsSeq(string(controllers)) {
		if !slices.Contains([]string{"cpu", "cpuset", "io", "memory", "pids", "hugetlb"}, controller) {
			continue
		}
		if err := os.WriteFile(path+"/cgroup.subtree_control", []byte("+"+controller), 0o600); err != nil {
			return fmt.Errorf("let the children of %s use the controller %s: %w", path, controller, err)
		}
	}
	return nil
}

func inheritCPUSet(root, path string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(path, name), value, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(path, "cgroup.clone_children"), []byte("1"), 0o600)
}

// removeCgroup removes a cgroup with all below it, in every hierarchy. The kernel needs a moment
// to take the last dead process out.
func removeCgroup(path string) error {
	var err error
	for range 50 {
		err = nil
		for _, root := range cgroupRoots() {
			err = errors.Join(err, removeTree(root+path))
		}
		if err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

func removeTree(top string) error {
	var folders []string
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		return err
	})
	for _, folder := range slices.Backward(folders) {
		if rerr := os.Remove(folder); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}
