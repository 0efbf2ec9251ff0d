package checks

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/limits"
)

// Type is a kind of check: one of its Values.
type Type string

// The severities: what a failing check means for the node.
const (
	// Required checks must pass for the node to be verified.
	Required = "required"
	// Advisory checks are reported as warnings if they fail, and do not keep the node unverified.
	Advisory = "warning"
)

// Defaults of the envelope.
const (
	// DefaultTimeoutSeconds is that of worker.checkTimeoutSeconds.
	DefaultTimeoutSeconds  = 10
	DefaultAttempts        = 1
	DefaultIntervalSeconds = 1
)

// Spec is one entry of worker.checks: the envelope that all types share, and the settings of its type.
type Spec struct {
	// Name identifies the check in reports, events, metrics and dependsOn. Unique.
	Name string `json:"name" required:"a name that is unique in the list" format:"check-name"`
	// Type says what is checked, and which key below holds its settings.
	Type Type `json:"type" required:""`
	// Severity of a failure. A failure with warning is only reported. Default required.
	Severity string `json:"severity,omitempty" enum:"required warning"`
	// TimeoutSeconds limits one attempt, in which refused and lost requests are repeated. It must be at most
	// worker.timeoutSeconds. Default worker.checkTimeoutSeconds.
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty" minimum:"1" maximum:"3600"`
	// Attempts is how often the check is tried until it passes. An attempt fails if an answer is final and wrong, or if an
	// error lasts for all of its time. Default 1.
	Attempts *int32 `json:"attempts,omitempty" minimum:"1" maximum:"100"`
	// IntervalSeconds is the wait between two attempts. Default 1.
	IntervalSeconds *int32 `json:"intervalSeconds,omitempty" minimum:"1" maximum:"3600"`
	// DependsOn names checks that must pass first; otherwise this one is skipped.
	DependsOn []string `json:"dependsOn,omitempty"`

	Table
}

// Timeout of one attempt.
func (s Spec) Timeout() time.Duration {
	return time.Duration(ptr.Deref(s.TimeoutSeconds, DefaultTimeoutSeconds)) * time.Second
}

// Interval is the wait between two attempts.
func (s Spec) Interval() time.Duration {
	return time.Duration(ptr.Deref(s.IntervalSeconds, DefaultIntervalSeconds)) * time.Second
}

// MaxAttempts is how often the check is tried.
func (s Spec) MaxAttempts() int { return int(ptr.Deref(s.Attempts, DefaultAttempts)) }

// IsRequired reports whether the check must pass for the node to be verified.
func (s Spec) IsRequired() bool { return s.Severity != Advisory }

// WithDefaults returns the check with its defaults; timeoutSeconds is the default timeout.
func (s Spec) WithDefaults(timeoutSeconds int32) Spec {
	s.Severity = cmp.Or(s.Severity, Required)
	s.TimeoutSeconds = cmp.Or(s.TimeoutSeconds, &timeoutSeconds)
	s.Attempts = cmp.Or(s.Attempts, new(int32(DefaultAttempts)))
	s.IntervalSeconds = cmp.Or(s.IntervalSeconds, new(int32(DefaultIntervalSeconds)))
	return s
}

// MaxChecks is how many checks a list may hold: about as many as a report can name.
const MaxChecks = 64

// Validate validates the names and the dependencies in a list of checks.
func Validate(specs []Spec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(specs) > MaxChecks {
		errs = append(errs, field.TooMany(path, len(specs), MaxChecks))
	}
	index := make(map[string]int, len(specs))
	for i, s := range specs {
		if s.Name == "" {
			continue
		}
		if _, twice := index[s.Name]; twice {
			errs = append(errs, field.Duplicate(path.Index(i).Child("name"), s.Name))
			continue
		}
		index[s.Name] = i
	}
	return append(errs, validateDependencies(specs, index, path)...)
}

// Validate reports settings of another type than the check's, and missing settings that have no default.
func (s *Spec) Validate(p *field.Path) field.ErrorList {
	var errs field.ErrorList
	s.lines(func(name Type, settings Settings, set bool) {
		switch at := p.Child(string(name)); {
		case name == s.Type && !set:
			errs = append(errs, limits.Validate(at, reflect.New(reflect.TypeOf(settings).Elem()).Interface())...)
		case name != s.Type && set && s.Settings() != nil:
			errs = append(errs, field.Invalid(at, "{...}",
				fmt.Sprintf("holds settings of type %q, but this check's type is %q; remove it or change the type", name, s.Type)))
		}
	})
	return errs
}

func validateDependencies(specs []Spec, index map[string]int, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, s := range specs {
		p := path.Index(i).Child("dependsOn")
		if len(s.DependsOn) > MaxChecks {
			errs = append(errs, field.TooMany(p, len(s.DependsOn), MaxChecks))
		}
		seen := map[string]bool{}
		for j, name := range s.DependsOn {
			d, known := index[name]
			switch {
			case seen[name]:
				errs = append(errs, field.Duplicate(p.Index(j), name))
			case !known:
				errs = append(errs, field.Invalid(p.Index(j), name, "there is no check of this name in the list"))
			case s.IsRequired() && !specs[d].IsRequired():
				// The warning would skip this check, and the node would pass without it.
				errs = append(errs, field.Invalid(p.Index(j), name,
					"has severity warning, but a required check can depend on required checks only; change either severity"))
			}
			seen[name] = true
		}
	}
	for _, cycle := range cycles(specs, index) {
		errs = append(errs, field.Invalid(path.Index(cycle[0]).Child("dependsOn"), cycleString(specs, cycle),
			"checks depend on each other in a circle; remove one of the dependencies"))
	}
	return errs
}

// cycles returns the checks of every cycle of dependencies.
func cycles(specs []Spec, index map[string]int) [][]int {
	const (
		unvisited = iota
		onPath
		done
	)
	var (
		found [][]int
		trail []int
		state = make([]int, len(specs))
		visit func(int)
	)
	visit = func(i int) {
		state[i] = onPath
		trail = append(trail, i)
		for _, name := range specs[i].DependsOn {
			d, known := index[name]
			if !known {
				continue
			}
			switch state[d] {
			case unvisited:
				visit(d)
			case onPath:
				found = append(found, slices.Clone(trail[slices.Index(trail, d):]))
			}
		}
		trail = trail[:len(trail)-1]
		state[i] = done
	}
	for i := range specs {
		if state[i] == unvisited {
			visit(i)
		}
	}
	return found
}

func cycleString(specs []Spec, cycle []int) string {
	var names []string
	for _, i := range append(slices.Clone(cycle), cycle[0]) {
		names = append(names, specs[i].Name)
	}
	return strings.Join(names, " -> ")
}
