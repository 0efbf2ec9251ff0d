package process

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startAndEnd, when set to "how,folder", makes the test binary start a group of two processes that owns the folder. The
// binary prints their IDs, and then ends in the given way without stopping the group.
const startAndEnd = "KUBE_NODE_READY_TEST_START_AND_END"

func TestMain(m *testing.M) {
	if how, folder, ok := strings.Cut(os.Getenv(startAndEnd), ","); ok {
		startThenEnd(how, folder)
	}
	os.Exit(m.Run())
}

func startThenEnd(how, folder string) {
	try := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	g, err := NewGroup(folder)
	try(err)
	p, err := g.Start(Spec{Path: "/bin/sleep", Args: []string{"60"}})
	try(err)
	script, err := g.Wrap(folder, "/bin/sleep")
	try(err)
	wrapped := exec.Command(script, "60")
	wrapped.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	try(wrapped.Start())
	for len(g.Pids()) < 2 {
		time.Sleep(time.Millisecond) // each makes its own file
	}
	fmt.Println(p.Pid())
	fmt.Println(wrapped.Process.Pid)
	switch how {
	case "panic":
		panic("as the test asked")
	case "exit":
		os.Exit(0)
	}
	select {} // the test sends a signal
}

func TestNothingOutlivesItsStarter(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for how, sig := range map[string]syscall.Signal{"panic": 0, "exit": 0, "interrupt": syscall.SIGINT, "kill": syscall.SIGKILL} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "folder")
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), startAndEnd+"="+how+","+folder)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			var pids []int
			for len(pids) < 2 && lines.Scan() {
				pid, err := strconv.Atoi(lines.Text())
				if err != nil {
					t.Fatal(lines.Text())
				}
				pids = append(pids, pid)
			}
			if sig != 0 {
				_ = cmd.Process.Signal(sig)
			}
			_ = cmd.Wait()
			for _, pid := range pids {
				if !gone(pid) {
					t.Errorf("process %d outlives its starter", pid)
				}
			}
			for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) && len(pids) == 2 {
					return
				}
				if time.Now().After(end) {
					t.Fatalf("the folder outlives its starter, or of %v there are not two", pids)
				}
			}
		})
	}
}
