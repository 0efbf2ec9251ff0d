// Package exec is the check type exec: a command says whether the node is fit.
package exec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/recovery"
)

// defaultMaxOutputBytes is how much of a command's output goes into its message.
const defaultMaxOutputBytes = 512

// What a command that could not tell means for the node.
const (
	// UnknownInconclusive proves nothing: the node is neither verified nor at fault.
	UnknownInconclusive = "inconclusive"
	// UnknownFail is held against the node.
	UnknownFail = "fail"
	// UnknownWarn is reported and holds nothing up.
	UnknownWarn = "warn"
)

// Settings runs a command, or reads the result that an init container left. Exit code 0 passes, 1
// fails. Everything else means that it could not tell: another code, a signal, a command that
// cannot be run, a result file that cannot be read.
type Settings struct {
	// Command and its arguments; no shell is involved. The first is a path or is found in PATH.
	Command []string `json:"command,omitempty"`
	// ResultFile, in place of a command, is a file that an init container wrote: its exit code
	// on the first line, then its output.
	ResultFile string `json:"resultFile,omitempty" format:"clean-path"`
	// OnUnknown is what it means when the command could not tell. Default inconclusive.
	OnUnknown string `json:"onUnknown,omitempty" enum:"inconclusive fail warn"`
	// MaxOutputBytes of standard output and error that are kept for the message. Default 512.
	MaxOutputBytes *int32 `json:"maxOutputBytes,omitempty" minimum:"1" maximum:"4096"`
}

// Validate reports what no limit of a single setting can.
func (s *Settings) Validate(p *field.Path) field.ErrorList {
	if len(s.Command) == 0 && s.ResultFile == "" {
		return field.ErrorList{field.Required(p.Child("command"), "the command to run, or resultFile")}
	}
	var errs field.ErrorList
	if len(s.Command) > 0 && s.ResultFile != "" {
		errs = append(errs, field.Forbidden(p.Child("resultFile"), "give either command or resultFile"))
	}
	if len(s.Command) > 0 && s.Command[0] == "" {
		errs = append(errs, field.Required(p.Child("command").Index(0), "the program to run"))
	}
	if i := slices.IndexFunc(s.Command, func(arg string) bool { return slices.Contains([]byte(arg), 0) }); i >= 0 {
		errs = append(errs, field.Invalid(p.Child("command").Index(i), "(not shown)", "must not contain a zero byte"))
	}
	return errs
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }

func (s *Settings) maxOutput() int { return int(ptr.Deref(s.MaxOutputBytes, defaultMaxOutputBytes)) }

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
		return check.Fail(check.ReasonTimeout, "%s did not end within %s and was killed%s",
			e.Command[0], took, said(output.String()))
	case cmd.ProcessState == nil:
		return check.Fail(check.ReasonUnknown, "%s could not be waited for: %v", e.Command[0], err)
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return check.Fail(check.ReasonUnknown, "%s was ended by signal %s%s",
			e.Command[0], status.Signal(), said(output.String()))
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
