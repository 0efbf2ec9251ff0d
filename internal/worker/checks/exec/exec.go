// Package exec is the check type exec: a command reports whether the node is healthy.
package exec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

// What an inconclusive command means for the node.
const (
	// UnknownInconclusive neither verifies nor fails the node.
	UnknownInconclusive = "inconclusive"
	// UnknownFail fails the node.
	UnknownFail = "fail"
	// UnknownWarn is reported as a warning, and does not keep the node unverified.
	UnknownWarn = "warn"
)

// VerdictJSON takes the result from a JSON document; the default takes it from the exit code.
const VerdictJSON = "json"

// Outcomes of a severity.
const (
	OutcomePassed       = "passed"
	OutcomeWarning      = "warning"
	OutcomeInconclusive = "inconclusive"
	OutcomeFailed       = "failed"
)

// Settings runs a command, or reads the result file of an init container. Exit code 0 passes, 1 fails. Everything else
// is inconclusive: another code, a signal, a command that cannot run, or a result file that cannot be read. With
// verdict: json, a JSON document decides instead.
type Settings struct {
	// Command and its arguments, without a shell. The command is a path, or a name to find in PATH.
	Command []string `json:"command,omitempty"`
	// ResultFile, instead of a command, is a file that an init container wrote: its exit code on the first line, then its
	// output.
	ResultFile string `json:"resultFile,omitempty" format:"clean-path"`
	// Verdict is where the result is: exitCode (default), or json. A JSON document has at most 1 MiB. It is all of the
	// command's standard output, or the rest of the result file.
	Verdict string `json:"verdict,omitempty" enum:"exitCode json"`
	// SeverityField, with verdict: json, is the document's field that holds the severity: keys with dots between them, as
	// in result.severity. In a list, every entry must have it, and the worst outcome counts.
	SeverityField string `json:"severityField,omitempty"`
	// Severities, with verdict: json, maps each severity to passed, warning, inconclusive or failed. A severity that is
	// not in the map, and a document that is missing or invalid, are inconclusive.
	Severities map[string]string `json:"severities,omitempty"`
	// OnUnknown is what an inconclusive command means. Default inconclusive.
	OnUnknown string `json:"onUnknown,omitempty" enum:"inconclusive fail warn"`
	// MaxOutputBytes is how much of standard output and error is kept for the message; with verdict: json, only standard
	// error. Default 512.
	MaxOutputBytes *int32 `json:"maxOutputBytes,omitempty" minimum:"1" maximum:"4096"`
}

// Validate checks the rules that concern more than one setting.
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
	if i := slices.IndexFunc(s.Command, func(arg string) bool { return strings.Contains(arg, "\x00") }); i >= 0 {
		errs = append(errs, field.Invalid(p.Child("command").Index(i), "(not shown)", "must not contain a zero byte"))
	}
	return append(errs, s.validateVerdict(p)...)
}

func (s *Settings) validateVerdict(p *field.Path) field.ErrorList {
	var errs field.ErrorList
	path, severities := p.Child("severityField"), p.Child("severities")
	if s.Verdict != VerdictJSON {
		if s.SeverityField != "" {
			errs = append(errs, field.Forbidden(path, "is only used with verdict: json"))
		}
		if len(s.Severities) > 0 {
			errs = append(errs, field.Forbidden(severities, "is only used with verdict: json"))
		}
		return errs
	}
	switch {
	case s.SeverityField == "":
		errs = append(errs, field.Required(path, "the field of the document that holds the severity, as in overall_severity"))
	case slices.Contains(strings.Split(s.SeverityField, "."), ""):
		errs = append(errs, field.Invalid(path, s.SeverityField, "must be keys with single dots between them"))
	}
	outcomes := []string{OutcomePassed, OutcomeWarning, OutcomeInconclusive, OutcomeFailed}
	values := slices.Collect(maps.Values(s.Severities))
	if !slices.Contains(values, OutcomePassed) && !slices.Contains(values, OutcomeWarning) {
		errs = append(errs, field.Required(severities, "map at least one severity to passed or warning, or no node can pass"))
	}
	for _, severity := range slices.Sorted(maps.Keys(s.Severities)) {
		if outcome := s.Severities[severity]; !slices.Contains(outcomes, outcome) {
			errs = append(errs, field.NotSupported(severities.Key(severity), outcome, outcomes))
		}
	}
	return errs
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }

func (s *Settings) maxOutput() int { return int(ptr.Deref(s.MaxOutputBytes, defaultMaxOutputBytes)) }

// maxResult limits what is read of a result.
func (s *Settings) maxResult() int {
	if s.Verdict == VerdictJSON {
		return maxDocument
	}
	return s.maxOutput()
}

// Exit codes of a command, as those of node-problem-detector's custom plugins (OK, NonOK; any other is Unknown).
const (
	exitPass = 0
	exitFail = 1
)

// waitDelay is how long a killed command's children may hold its output open.
const waitDelay = 100 * time.Millisecond

// hidden is the variable of the worker's environment that a command does not get.
const hidden = "KUBE_NODE_READY_CONFIG="

// New prepares the check.
func (s *Settings) New(environment.Pod) check.Func {
	e := ptr.Deref(s, Settings{})
	return func(ctx context.Context) check.Finding {
		if e.ResultFile != "" {
			return e.readResult()
		}
		return e.run(ctx)
	}
}

// unknown is the finding of a command that could not tell.
func (s *Settings) unknown(format string, args ...any) check.Finding {
	f := check.Fail(check.ReasonUnknown, format, args...)
	switch s.OnUnknown {
	case UnknownFail:
		f.Outcome = check.Failed
	case UnknownWarn:
		f.Outcome = check.Warned
	}
	return f
}

// run runs the command in its own process group, so that its children end with it.
func (s *Settings) run(ctx context.Context) check.Finding {
	output, errorOutput := &capped{most: s.maxResult()}, &capped{most: s.maxOutput()}
	if s.Verdict != VerdictJSON {
		errorOutput = output
	}
	name := s.Command[0]
	cmd := exec.CommandContext(ctx, name, s.Command[1:]...)
	cmd.Stdout, cmd.Stderr = output, errorOutput
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = waitDelay
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, hidden) })

	start := time.Now()
	err := cmd.Run()
	if cmd.Process == nil {
		return s.cannotStart(err)
	}
	// Children that the command left behind go with it.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	took := time.Since(start).Round(time.Millisecond)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return check.Fail(check.ReasonInterrupted, "%s was killed: the worker was stopped", name)
	case ctx.Err() != nil:
		return check.Fail(check.ReasonTimeout, "%s did not end within %s and was killed%s", name, took, errorOutput.said())
	case cmd.ProcessState == nil:
		return s.unknown("waiting for %s failed: %v", name, err)
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return s.unknown("%s was ended by signal %s%s", name, status.Signal(), errorOutput.said())
	}
	return s.evaluate(name, cmd.ProcessState.ExitCode(), output, errorOutput)
}

// cannotStart is as likely about the configuration or the image as about the node.
func (s *Settings) cannotStart(err error) check.Finding {
	why := fmt.Sprint(err)
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		why = "the worker's container has no such program"
	case errors.Is(err, fs.ErrPermission):
		why = "the worker's user may not execute it"
	}
	return s.unknown("%s cannot be started: %s", s.Command[0], why)
}

// capped keeps the beginning of what is written to it. Standard output and error may share one: package exec then
// writes from a single goroutine.
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

// said is the end of a message with the output.
func (c *capped) said() string {
	if s := c.String(); s != "" {
		return ": " + s
	}
	return ""
}
