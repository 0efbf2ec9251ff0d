package exec

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
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
	var faults field.ErrorList
	if len(s.Command) > 0 && s.ResultFile != "" {
		faults = append(faults, field.Forbidden(p.Child("resultFile"), "give either command or resultFile"))
	}
	if len(s.Command) > 0 && s.Command[0] == "" {
		faults = append(faults, field.Required(p.Child("command").Index(0), "the program to run"))
	}
	if i := slices.IndexFunc(s.Command, func(arg string) bool { return slices.Contains([]byte(arg), 0) }); i >= 0 {
		faults = append(faults, field.Invalid(p.Child("command").Index(i), "(not shown)", "must not contain a zero byte"))
	}
	return faults
}

// NeedsAPI reports whether the Kubernetes API is called: never.
func (s *Settings) NeedsAPI() bool { return false }

func (s *Settings) maxOutput() int { return int(ptr.Deref(s.MaxOutputBytes, defaultMaxOutputBytes)) }
