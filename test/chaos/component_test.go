package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// component is etcd or the API server, which can be ended and started again with the same arguments.
type component struct {
	cluster *cluster.Cluster
	name    string
	argv    []string

	mu  sync.Mutex // one disturbance at a time
	pid int
}

// componentOf finds a running component of the cluster among its processes.
func componentOf(c *cluster.Cluster, name string) (*component, error) {
	for _, pid := range c.Processes().Pids() {
		program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || filepath.Base(program) != name {
			continue
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			return nil, err
		}
		argv := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		argv[0] = program
		return &component{cluster: c, name: name, argv: argv, pid: pid}, nil
	}
	return nil, fmt.Errorf("%s does not run", name)
}

// flag is the value of one of its flags.
func (c *component) flag(name string) string {
	for _, arg := range c.argv {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return value
		}
	}
	return ""
}

// restart kills it and starts it again; the API server is up some seconds later.
func (c *component) restart() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = syscall.Kill(-c.pid, syscall.SIGKILL)
	return c.start()
}

// supervise starts it again where it ended by itself, until ctx ends: an API server does that when etcd is gone.
func (c *component) supervise(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, 200*time.Millisecond) {
		c.mu.Lock()
		if !c.alive() {
			_ = c.start() // it is tried again
		}
		c.mu.Unlock()
	}
}

// start starts it once it has ended.
func (c *component) start() error {
	for end := time.Now().Add(10 * time.Second); c.alive() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	log, err := os.OpenFile(c.cluster.LogFile(c.name), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	p, err := c.cluster.Processes().Start(process.Spec{Path: c.argv[0], Args: c.argv[1:], Stdout: log, Stderr: log})
	if err == nil {
		c.pid = p.Pid()
	}
	return err
}

// alive reports whether the process is there, and not only waited for.
func (c *component) alive() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// freeze stops it for a while: it neither answers nor refuses.
func (c *component) freeze(ctx context.Context, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = syscall.Kill(c.pid, syscall.SIGSTOP)
	pause(ctx, d)
	_ = syscall.Kill(c.pid, syscall.SIGCONT)
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
