// Package process starts local processes that cannot outlive their starter. Each Group has a
// small supervisor process which kills the group's processes and removes its folders when the
// starter is gone, however it went: return, panic, os.Exit, Ctrl-C or SIGKILL.
package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// supervisorScript waits for the end of its standard input, which means that the starter, which alone holds the other end,
// is gone or has stopped the group. Then it kills the process group of every process that has a file in the first folder,
// named by its id, and removes the folders. The removal is repeated because a process that is being killed may still
// create a file.
const supervisorScript = `
cat >/dev/null
again=
for f in "$1"/*; do kill -s KILL -- "-${f##*/}" 2>/dev/null && again=1; done
tries=0
while [ $tries -lt 100 ]; do
	rm -rf -- "$@" 2>/dev/null && [ -z "$again" ] && exit 0
	again=
	tries=$((tries + 1))
	sleep 0.1
done`

// launchScript makes its own file before it becomes the program. It holds the starter's end of the supervisor's input open
// until then, so there is no moment at which a started process is unknown to the supervisor.
const launchScript = `: >"$0/$$" || exit 125; exec "$@" 3>&-`

// Group is a set of processes with one end. It is safe for concurrent use.
type Group struct {
	pipe       *os.File
	supervisor *exec.Cmd
	pids       string // folder with one file per process, named by its id

	mu      sync.Mutex
	running map[*Process]struct{}
	stopped bool
	once    sync.Once
}

// NewGroup starts a group's supervisor. The folders are removed when the group ends.
func NewGroup(folders ...string) (*Group, error) {
	pids, err := os.MkdirTemp("", "kube-node-ready-pids-")
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	g := &Group{pipe: w, pids: pids, running: map[*Process]struct{}{}}
	g.supervisor = exec.Command("/bin/sh", append([]string{"-c", supervisorScript, "supervisor", pids}, folders...)...)
	g.supervisor.Stdin = r
	g.supervisor.Dir = "/"
	// A session of its own: the terminal's Ctrl-C is for the starter, not for the one that cleans up after it.
	g.supervisor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := g.supervisor.Start(); err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	return g, nil
}

// Spec is a process to start.
type Spec struct {
	Path string   // absolute path of the program
	Args []string // without the program's name
	// Env is the whole environment; nil inherits the starter's. The shell that launches the
	// program may add PWD, and on some systems SHLVL and _.
	Env []string
	Dir string // working directory; empty is the starter's
	// Stdout and Stderr are files, not writers, so that a process which leaves children behind
	// cannot keep Wait waiting. nil discards.
	Stdout, Stderr *os.File
}

// Process is a started process. It leads a process group of its own.
type Process struct {
	// Name is for messages: the program's path.
	Name string

	cmd  *exec.Cmd
	done chan struct{}
}

// Start starts a process. It fails on a program that is not there or not executable, and
// after Stop.
func (g *Group) Start(s Spec) (*Process, error) {
	info, err := os.Stat(s.Path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return nil, &fs.PathError{Op: "exec", Path: s.Path, Err: fs.ErrPermission}
	}
	p := &Process{Name: s.Path, done: make(chan struct{})}
	p.cmd = exec.Command("/bin/sh", append([]string{"-c", launchScript, g.pids, s.Path}, s.Args...)...)
	p.cmd.Env, p.cmd.Dir = s.Env, s.Dir
	if s.Env != nil && len(s.Env) == 0 {
		p.cmd.Env = []string{"PATH="} // os/exec takes an empty list for "inherit"
	}
	// A nil *os.File in an io.Writer is not a nil io.Writer.
	if s.Stdout != nil {
		p.cmd.Stdout = s.Stdout
	}
	if s.Stderr != nil {
		p.cmd.Stderr = s.Stderr
	}
	p.cmd.ExtraFiles = []*os.File{g.pipe}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return nil, errors.New("the process group is stopped")
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	g.running[p] = struct{}{}
	go g.wait(p)
	return p, nil
}

// wait reaps a process. Until it is reaped its id cannot be given to another process, so
// its group is killed and its file removed before that.
func (g *Group) wait(p *Process) {
	awaitExit(p.cmd.Process.Pid)
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_ = os.Remove(filepath.Join(g.pids, strconv.Itoa(p.cmd.Process.Pid)))
	_ = p.cmd.Wait()
	g.mu.Lock()
	delete(g.running, p)
	g.mu.Unlock()
	close(p.done)
}

// Wrap makes a script that runs the program as one of the group, for those who start processes themselves and ask each for
// its --help first, as envtest does. To that question the script answers nothing, without a start of the program. The
// program must lead a process group of its own. The script is in the folder, under the program's name.
func (g *Group) Wrap(folder, program string) (string, error) {
	path := filepath.Join(folder, filepath.Base(program))
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" != --help ] || exit 0\n: >'%s'/$$ || exit 125\nexec '%s' \"$@\"\n", g.pids, program)
	return path, os.WriteFile(path, []byte(script), 0o700) //nolint:gosec // it is to be executed
}

// Pids are the ids of the group's processes, those that ended by themselves included where Wrap's script started them.
func (g *Group) Pids() []int {
	entries, _ := os.ReadDir(g.pids)
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Stop kills every process of the group, waits for those that Start started, and removes the group's folders. It may be
// called more than once.
func (g *Group) Stop() {
	g.once.Do(func() {
		g.mu.Lock()
		g.stopped = true
		running := make([]*Process, 0, len(g.running))
		for p := range g.running {
			running = append(running, p)
		}
		g.mu.Unlock()
		for _, p := range running {
			p.Kill()
		}
		for _, p := range running {
			<-p.done
		}
		_ = g.pipe.Close()
		_ = g.supervisor.Wait()
	})
}

// Pid is the process's id, and that of its process group.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process alone. An ended process is not an error.
func (p *Process) Signal(sig syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = p.cmd.Process.Signal(sig)
	}
}

// Kill kills the process and its process group.
func (p *Process) Kill() {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(-p.Pid(), syscall.SIGKILL)
		_ = p.cmd.Process.Kill() // its group may not exist yet
	}
}

// Done is closed once the process has ended and its process group was killed.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode is what a shell would say: the exit code, or 128 plus the signal that ended the
// process. It must not be called before Done is closed.
func (p *Process) ExitCode() int {
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// Terminate sends SIGTERM, and after the grace period SIGKILL; it returns once the process has ended.
func (p *Process) Terminate(grace time.Duration) {
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		p.Kill()
		<-p.done
	}
}
