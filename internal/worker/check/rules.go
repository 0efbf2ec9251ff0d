package check

import (
	"fmt"
	"math"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// InRange faults a value below low or above high; math.MaxInt32 is no limit.
func InRange(p *field.Path, value, low, high int32) field.ErrorList {
	switch {
	case value >= low && value <= high:
		return nil
	case high == math.MaxInt32:
		return field.ErrorList{field.Invalid(p, value, fmt.Sprintf("must be at least %d", low))}
	}
	return field.ErrorList{field.Invalid(p, value, fmt.Sprintf("must be between %d and %d", low, high))}
}

// Optional is InRange of a value whose absence stands for a default that low may exclude: written down,
// a 0 is meant as a value.
func Optional(p *field.Path, value *int32, low, high int32) field.ErrorList {
	if value == nil || *value >= low && *value <= high {
		return nil
	}
	return field.ErrorList{field.Invalid(p, *value, fmt.Sprintf("must be between %d and %d; leave it out for the default", low, high))}
}

// OneOf faults a value that is neither empty (the default) nor one of those listed.
func OneOf[T ~string](p *field.Path, value T, allowed []T) field.ErrorList {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(p, value, allowed)}
}

// SetOf faults values that are not listed or given twice.
func SetOf[T ~string](p *field.Path, values, allowed []T) field.ErrorList {
	var faults field.ErrorList
	for i, v := range values {
		switch {
		case !slices.Contains(allowed, v):
			faults = append(faults, field.NotSupported(p.Index(i), v, allowed))
		case slices.Contains(values[:i], v):
			faults = append(faults, field.Duplicate(p.Index(i), v))
		}
	}
	return faults
}

// Named faults a name that is given and that Kubernetes' rule for its kind refuses.
func Named(p *field.Path, value string, rule func(string) []string) field.ErrorList {
	var faults field.ErrorList
	if value != "" {
		for _, message := range rule(value) {
			faults = append(faults, field.Invalid(p, value, message))
		}
	}
	return faults
}

// Absolute faults a path that is given but not absolute, or not in its shortest form.
func Absolute(p *field.Path, value string) field.ErrorList {
	switch {
	case value == "":
		return nil
	case !path.IsAbs(value):
		return field.ErrorList{field.Invalid(p, value, "must be an absolute path")}
	case slices.Contains([]byte(value), 0):
		return field.ErrorList{field.Invalid(p, value, "must not contain a zero byte")}
	case path.Clean(value) != value && path.Clean(value)+"/" != value:
		return field.ErrorList{field.Invalid(p, value, fmt.Sprintf("write it as %s", path.Clean(value)))}
	}
	return nil
}
