package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with a file.
type Fault struct {
	// File is its name as it was given to Decode.
	File string
	// Line counts from 1.
	Line int
	// Path is the value's, as in worker.checks[2].timeoutSeconds; empty for the whole file.
	Path string
	// Message says what is wrong and what would be right.
	Message string
	// Unknown is set when Path names a key that nothing reads, so that a caller who knows
	// where the key has gone can say it.
	Unknown bool
}

// Error is the fault on one line, as in "config.yaml:12: worker.scheduling: must be ...".
func (f Fault) Error() string {
	if f.Path == "" {
		return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Path, f.Message)
}

// Faults are all that is wrong with a file, in the order of its lines.
type Faults []Fault

// Error is one line per fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// Err is f as an error, nil when there is no fault. Returning f itself as an error would
// give a non-nil interface around a nil slice.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// Cover says whether the value at path, or one around it, has one of the faults. Where they
// are of values that could not be read, the file does not say what is judged there.
func (f Faults) Cover(path string) bool {
	for _, fault := range f {
		rest, ok := strings.CutPrefix(path, fault.Path)
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// Join returns the faults of f and g in the order of their lines.
func (f Faults) Join(g Faults) Faults {
	return append(slices.Clone(f), g...).sorted()
}

func (f Faults) sorted() Faults {
	slices.SortStableFunc(f, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	return f
}
