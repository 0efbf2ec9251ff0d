package checks

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/limits"
)

// MaxChecks is how many checks a list may hold: about as many as a report can name.
const MaxChecks = 64

// Validate reports what is wrong with a list of checks as a whole: names that are given twice, and how they depend on each
// other.
func Validate(specs []Spec, path *field.Path) field.ErrorList {
	var faults field.ErrorList
	if len(specs) > MaxChecks {
		faults = append(faults, field.TooMany(path, len(specs), MaxChecks))
	}
	index := make(map[string]int, len(specs))
	for i, s := range specs {
		if s.Name == "" {
			continue
		}
		if _, twice := index[s.Name]; twice {
			faults = append(faults, field.Duplicate(path.Index(i).Child("name"), s.Name))
			continue
		}
		index[s.Name] = i
	}
	return append(faults, validateDependencies(specs, index, path)...)
}

// Validate reports settings of another type than the check's, and settings that are not there and have no default.
func (s *Spec) Validate(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	s.lines(func(name Type, settings Settings, set bool) {
		switch at := p.Child(string(name)); {
		case name == s.Type && !set:
			faults = append(faults, limits.Validate(at, reflect.New(reflect.TypeOf(settings).Elem()).Interface())...)
		case name != s.Type && set && s.Settings() != nil:
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
