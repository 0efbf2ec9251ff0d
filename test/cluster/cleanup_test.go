package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startAndWait, when set, makes the test binary start a cluster, print its folder and its processes' ids, and wait.
const startAndWait = "KUBE_NODE_READY_TEST_START_AND_WAIT"

func TestMain(m *testing.M) {
	if os.Getenv(startAndWait) != "" {
		startThenWait()
	}
	os.Exit(m.Run())
}

func startThenWait() {
	c, err := Start(context.Background(), Options{WithoutScheduler: true, WithoutControllerManager: true})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("dir", c.Dir())
	for _, pid := range c.group.Pids() {
		fmt.Println("pid", pid)
	}
	fmt.Println("started")
	select {} // the test kills it
}

// Other ends than SIGKILL are the package process' to test: they are all one to it.
func TestNothingOutlivesItsStarter(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), startAndWait+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	var pids []int
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "started" {
		key, value, _ := strings.Cut(lines.Text(), " ")
		switch key {
		case "dir":
			dir = value
		case "pid":
			pid, _ := strconv.Atoi(value)
			pids = append(pids, pid)
		default:
			t.Log(lines.Text())
		}
	}
	if dir == "" || len(pids) != 2 || !alive(pids[0]) || !alive(pids[1]) {
		t.Fatalf("the cluster did not start: folder %q, processes %v", dir, pids)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	gone := func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist) && !alive(pids[0]) && !alive(pids[1])
	}
	for end := time.Now().Add(10 * time.Second); !gone(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("folder %s or processes %v are left behind", dir, pids)
		}
	}
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}
