// Package exec is the check type exec: a command says whether the node is fit.
package exec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
)

// Exit codes of a command, as monitoring plugins for nodes have them (the custom plugins of
// node-problem-detector: OK, NonOK, Unknown).
const (
	exitPass = 0
	exitFail = 1
)

// waitDelay is how long a killed command's children may hold its output open.
const waitDelay = 100 * time.Millisecond

// hidden are the variables of the worker's environment that a command does not get.
var hidden = []string{"KUBE_NODE_READY_CONFIG="}

// New prepares the check.
func (s *Settings) New(environment.Pod) check.Func {
	e := ptr.Deref(s, Settings{})
	return func(ctx context.Context) check.Finding {
		if e.ResultFile != "" {
			return weigh(readResult(e), e.OnUnknown)
		}
		return weigh(run(ctx, e), e.OnUnknown)
	}
}

// weigh makes of a command that could not tell what the settings say that it means.
func weigh(f check.Finding, onUnknown string) check.Finding {
	if f.Reason == check.ReasonUnknown {
		switch onUnknown {
		case UnknownFail:
			f.Outcome = check.Failed
		case UnknownWarn:
			f.Outcome = check.Warned
		}
	}
	return f
}

// run runs the command in a process group of its own, so that what it started ends with it.
func run(ctx context.Context, e Settings) check.Finding {
	output := &capped{most: e.maxOutput()}
	cmd := exec.CommandContext(ctx, e.Command[0], e.Command[1:]...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = waitDelay
	cmd.Env = visible(os.Environ())

	start := time.Now()
	err := cmd.Run()
	if cmd.Process == nil {
		return cannotStart(e, err)
	}
	// Children that the command left behind go with it.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	took := time.Since(start).Round(time.Millisecond)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return check.Fail(check.ReasonInterrupted, "%s was killed: the worker was told to stop", e.Command[0])
	case ctx.Err() != nil:
		return check.Fail(check.ReasonTimeout, "%s did not end within %s and was killed%s", e.Command[0], took, said(output.String()))
	case cmd.ProcessState == nil:
		return check.Fail(check.ReasonUnknown, "%s could not be waited for: %v", e.Command[0], err)
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return check.Fail(check.ReasonUnknown, "%s was ended by signal %s%s", e.Command[0], status.Signal(), said(output.String()))
	}
	return judge(e.Command[0], cmd.ProcessState.ExitCode(), output.String())
}

// cannotStart is as likely about the configuration or the image as about the node.
func cannotStart(e Settings, err error) check.Finding {
	why := fmt.Sprint(err)
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		why = "there is no such program in the worker's container"
	case errors.Is(err, fs.ErrPermission):
		why = "the worker's user may not execute it"
	}
	return check.Fail(check.ReasonUnknown, "%s cannot be started: %s", e.Command[0], why)
}

// judge turns an exit code into a finding.
func judge(what string, code int, output string) check.Finding {
	switch code {
	case exitPass:
		return check.Pass("%s exited with 0%s", what, said(output))
	case exitFail:
		return check.Fail(check.ReasonCommandFailed, "%s exited with 1%s", what, said(output))
	}
	return check.Fail(check.ReasonUnknown, "%s exited with %d: it could not tell%s", what, code, said(output))
}

func said(output string) string {
	if output == "" {
		return ""
	}
	return ": " + output
}

// visible is the worker's environment, without its configuration.
func visible(env []string) []string {
	kept := env[:0:0]
next:
	for _, v := range env {
		for _, h := range hidden {
			if strings.HasPrefix(v, h) {
				continue next
			}
		}
		kept = append(kept, v)
	}
	return kept
}

// capped keeps the beginning of what is written to it and swallows the rest. Standard output
// and error share one, which package exec writes to from a single goroutine.
type capped struct {
	most int
	kept []byte
	more bool
}

func (c *capped) Write(p []byte) (int, error) {
	return len(p), recovery.Try(func() error { c.keep(p); return nil }) // in a goroutine of package exec
}

func (c *capped) keep(p []byte) {
	room := c.most - len(c.kept)
	c.more = c.more || len(p) > room
	c.kept = append(c.kept, p[:min(room, len(p))]...)
}

func (c *capped) String() string {
	s := strings.TrimSpace(strings.ToValidUTF8(string(c.kept), "?"))
	if c.more {
		s += "…"
	}
	return s
}
