package checks

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

// MaxChecks is how many checks a list may hold: about as many as a report can name.
const MaxChecks = 64

// Limits of the envelope.
const (
	maxNameLength = 63   // names are metric labels
	maxSeconds    = 3600 // an hour; a worker lives for minutes
	maxAttempts   = 100
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)

// Validate reports every fault in a list of checks: in each check's envelope and settings,
// and in how they depend on each other. Absent values are taken as their defaults.
func Validate(specs []Spec, path *field.Path) field.ErrorList {
	var faults field.ErrorList
	if len(specs) > MaxChecks {
		faults = append(faults, field.TooMany(path, len(specs), MaxChecks))
	}
	index := make(map[string]int, len(specs))
	for i, s := range specs {
		p := path.Index(i)
		faults = append(faults, s.validate(p)...)
		if s.Name == "" {
			continue
		}
		if _, twice := index[s.Name]; twice {
			faults = append(faults, field.Duplicate(p.Child("name"), s.Name))
			continue
		}
		index[s.Name] = i
	}
	return append(faults, validateDependencies(specs, index, path)...)
}

func (s Spec) validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	switch {
	case s.Name == "":
		faults = append(faults, field.Required(p.Child("name"), "give the check a name that is unique in the list"))
	case len(s.Name) > maxNameLength || !nameForm.MatchString(s.Name):
		faults = append(faults, field.Invalid(p.Child("name"), s.Name,
			fmt.Sprintf("must be at most %d letters, digits, '-', '_' and '.', and begin and end with a letter or digit", maxNameLength)))
	}
	faults = append(faults, check.OneOf(p.Child("severity"), s.Severity, []Severity{Required, Advisory})...)
	faults = append(faults, check.Optional(p.Child("timeoutSeconds"), s.TimeoutSeconds, 1, maxSeconds)...)
	faults = append(faults, check.Optional(p.Child("attempts"), s.Attempts, 1, maxAttempts)...)
	faults = append(faults, check.Optional(p.Child("intervalSeconds"), s.IntervalSeconds, 1, maxSeconds)...)
	return append(faults, s.validateSettings(p)...)
}

func (s Spec) validateSettings(p *field.Path) field.ErrorList {
	if s.Type == "" {
		return field.ErrorList{field.Required(p.Child("type"), fmt.Sprintf("one of %v", Types()))}
	}
	if s.Settings() == nil {
		return field.ErrorList{field.NotSupported(p.Child("type"), s.Type, Types())}
	}
	var faults field.ErrorList
	s.lines(func(name Type, settings Settings, set bool) {
		switch at := p.Child(string(name)); {
		case name == s.Type: // absent ones as well: some have no default
			faults = append(faults, settings.Validate(at)...)
		case set:
			faults = append(faults, field.Invalid(at, "{...}",
				fmt.Sprintf("holds settings of type %q, but this check's type is %q; remove it or change the type", name, s.Type)))
		}
	})
	return faults
}

func validateDependencies(specs []Spec, index map[string]int, path *field.Path) field.ErrorList {
	var faults field.ErrorList
	for i, s := range specs {
		p := path.Index(i).Child("dependsOn")
		if len(s.DependsOn) > MaxChecks {
			faults = append(faults, field.TooMany(p, len(s.DependsOn), MaxChecks))
		}
		seen := map[string]bool{}
		for j, name := range s.DependsOn {
			d, known := index[name]
			switch {
			case seen[name]:
				faults = append(faults, field.Duplicate(p.Index(j), name))
			case !known:
				faults = append(faults, field.Invalid(p.Index(j), name, "there is no check of this name in the list"))
			case s.IsRequired() && !specs[d].IsRequired():
				// The warning would skip this check, and a node would be verified unproved.
				faults = append(faults, field.Invalid(p.Index(j), name,
					"has severity warning, but a required check can depend on required checks only; change either severity"))
			}
			seen[name] = true
		}
	}
	for _, cycle := range cycles(specs, index) {
		faults = append(faults, field.Invalid(path.Index(cycle[0]).Child("dependsOn"), cycleString(specs, cycle),
			"checks depend on each other in a circle; remove one of the dependencies"))
	}
	return faults
}

// cycles finds, for every circle of dependencies, the checks on it.
func cycles(specs []Spec, index map[string]int) [][]int {
	const (
		unseen = iota
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
			case unseen:
				visit(d)
			case onPath:
				found = append(found, slices.Clone(trail[slices.Index(trail, d):]))
			}
		}
		trail = trail[:len(trail)-1]
		state[i] = done
	}
	for i := range specs {
		if state[i] == unseen {
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
