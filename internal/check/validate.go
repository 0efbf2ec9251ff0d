package check

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxChecks is how many checks a list may hold: about as many as a report can name.
const MaxChecks = 64

// Limits of the envelope.
const (
	maxNameLength     = 63   // names are metric labels
	maxSeconds        = 3600 // an hour; a worker lives for minutes
	maxAttempts       = 100
	maxDependsOnCount = MaxChecks
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)

// block is a type's settings in a Spec.
type block struct {
	key   string
	set   bool
	check func(*field.Path) field.ErrorList
}

// blocks lists every type's settings, in the order of the documentation.
func (s Spec) blocks() []block {
	return []block{
		newBlock(TypeDNS, s.DNS),
		newBlock(TypeKubernetesAPI, s.KubernetesAPI),
		newBlock(TypeTCP, s.TCP),
		newBlock(TypeHTTP, s.HTTP),
		newBlock(TypeServiceDiscovery, s.ServiceDiscovery),
		newBlock(TypePeers, s.Peers),
		newBlock(TypeMTU, s.MTU),
		newBlock(TypeClock, s.Clock),
		newBlock(TypeFile, s.File),
		newBlock(TypeDisk, s.Disk),
		newBlock(TypeExec, s.Exec),
	}
}

func newBlock[T interface {
	validate(*field.Path) field.ErrorList
}](t Type, settings T) block {
	return block{key: string(t), set: !reflect.ValueOf(settings).IsNil(), check: settings.validate}
}

// Types lists every check type, in the order of the documentation.
func Types() []Type {
	var types []Type
	for _, b := range (Spec{}).blocks() {
		types = append(types, Type(b.key))
	}
	return types
}

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
	switch s.Severity {
	case "", Required, Advisory:
	default:
		faults = append(faults, field.NotSupported(p.Child("severity"), s.Severity, []Severity{Required, Advisory}))
	}
	faults = append(faults, inRange(p.Child("timeoutSeconds"), s.TimeoutSeconds, 0, maxSeconds)...)
	faults = append(faults, inRange(p.Child("attempts"), s.Attempts, 0, maxAttempts)...)
	faults = append(faults, inRange(p.Child("intervalSeconds"), s.IntervalSeconds, 0, maxSeconds)...)
	return append(faults, s.validateBlocks(p)...)
}

func (s Spec) validateBlocks(p *field.Path) field.ErrorList {
	var faults field.ErrorList
	if s.Type == "" {
		return append(faults, field.Required(p.Child("type"), "one of "+typeList()))
	}
	if !slices.Contains(Types(), s.Type) {
		return append(faults, field.NotSupported(p.Child("type"), s.Type, Types()))
	}
	for _, b := range s.blocks() {
		switch {
		case b.key == string(s.Type):
			// An absent block is validated as well: some types have settings without a default.
			faults = append(faults, b.check(p.Child(b.key))...)
		case b.set:
			faults = append(faults, field.Invalid(p.Child(b.key), "{...}",
				fmt.Sprintf("holds settings of type %q, but this check's type is %q; remove it or change the type", b.key, s.Type)))
		}
	}
	return faults
}

func validateDependencies(specs []Spec, index map[string]int, path *field.Path) field.ErrorList {
	var faults field.ErrorList
	for i, s := range specs {
		p := path.Index(i).Child("dependsOn")
		if len(s.DependsOn) > maxDependsOnCount {
			faults = append(faults, field.TooMany(p, len(s.DependsOn), maxDependsOnCount))
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

func typeList() string {
	var names []string
	for _, t := range Types() {
		names = append(names, string(t))
	}
	return strings.Join(names, ", ")
}

func inRange(p *field.Path, value, low, high int32) field.ErrorList {
	if value >= low && value <= high {
		return nil
	}
	if high == math.MaxInt32 {
		return field.ErrorList{field.Invalid(p, value, fmt.Sprintf("must be at least %d", low))}
	}
	return field.ErrorList{field.Invalid(p, value, fmt.Sprintf("must be between %d and %d", low, high))}
}
