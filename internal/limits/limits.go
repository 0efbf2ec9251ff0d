// Package limits holds the limits of single values, which stand as tags on the fields of a configuration. Validation,
// docs/reference/configuration.md and the chart's schema read them there:
//
//	minimum:"1" maximum:"3600"  the bounds of a number, or of a duration such as "1s"
//	or:"-1 for never"           a value outside the bounds, and what it means
//	enum:"direct scheduler"     the words there are; a list holds each of them once
//	format:"dns-label"          a key of formats
//	required:"the path to read" the value must not be empty, and what to give
//
// All but required apply to each entry of a list. A pointer that is nil, and an empty string that is not required,
// stand for a default and have no fault.
package limits

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"
)

// module begins the import paths of the types whose fields have limits.
const module = "github.com/kube-node-ready/kube-node-ready/"

// Limit is the limits of one field.
type Limit struct {
	Minimum, Maximum string   // empty for none
	Or               string   // a value, a space and what it means
	Enum             []string // empty for any word
	Format           *Format  // nil for any text
	Required         bool
	hint             string
}

// Of is the limits of a field.
func Of(f reflect.StructField) Limit {
	hint, required := f.Tag.Lookup("required")
	l := Limit{Minimum: f.Tag.Get("minimum"), Maximum: f.Tag.Get("maximum"), Or: f.Tag.Get("or"),
		Enum: strings.Fields(f.Tag.Get("enum")), Required: required, hint: hint}
	if words, ok := reflect.Zero(f.Type).Interface().(interface{ Values() []string }); ok {
		l.Enum = words.Values()
	}
	if name := f.Tag.Get("format"); name != "" {
		format, ok := formats[name]
		if !ok {
			panic(fmt.Sprintf("field %s has the unknown format %s", f.Name, name))
		}
		l.Format = &format
	}
	return l
}

// Range is the bounds in words, as "between 1 and 3600" or "at least 1s, or 0s for never"; empty if there are none.
func (l Limit) Range() string {
	text := "at least " + l.Minimum
	switch {
	case l.Minimum == "":
		return ""
	case l.Maximum != "":
		text = fmt.Sprintf("between %s and %s", l.Minimum, l.Maximum)
	}
	if l.Or != "" {
		text += ", or " + l.Or
	}
	return text
}

// Number is a bound as a number, in nanoseconds if it is a duration.
func Number(bound string) float64 {
	if d, err := time.ParseDuration(bound); err == nil {
		return float64(d)
	}
	n, err := strconv.ParseFloat(bound, 64)
	if err != nil {
		panic(err) // a tag of ours
	}
	return n
}

// Validator is a struct, list or map with rules that no limit of a single field can be: between fields or entries, or
// of forms that take a parser.
type Validator interface {
	// Validate reports what breaks these rules in the value at the path.
	Validate(*field.Path) field.ErrorList
}

// Validate reports every value that breaks a limit of its field, and what each Validator reports, in the value that a
// pointer or a slice at the path holds. A Validator's report on a field that breaks its own limit is left out.
func Validate(p *field.Path, v any) field.ErrorList { return walk(p, reflect.ValueOf(v)) }

func walk(p *field.Path, v reflect.Value) field.ErrorList {
	var faults field.ErrorList
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil():
		return walk(p, v.Elem())
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			faults = append(faults, walk(p.Index(i), v.Index(i))...)
		}
	case v.Kind() == reflect.Struct && strings.HasPrefix(v.Type().PkgPath(), module):
		faults = fields(p, v)
	}
	if !v.CanAddr() || !strings.HasPrefix(v.Type().PkgPath(), module) {
		return faults
	}
	if s, ok := v.Addr().Interface().(Validator); ok {
		own := slices.Clone(faults)
		for _, fault := range s.Validate(p) {
			if !slices.ContainsFunc(own, func(e *field.Error) bool { return e.Field == fault.Field }) {
				faults = append(faults, fault)
			}
		}
	}
	return faults
}

// fields walks the fields of a struct, those of embedded structs included.
func fields(p *field.Path, v reflect.Value) field.ErrorList {
	var faults field.ErrorList
	set := 0
	for _, value := range v.Fields() {
		if !value.IsZero() {
			set++
		}
	}
	short, _ := v.Addr().Interface().(strictyaml.Shorthand)
	for f, value := range v.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && key == "":
			faults = append(faults, fields(p, value)...)
		case f.IsExported():
			at := p.Child(key)
			if short != nil && set == 1 && (key == short.Shorthand(true) || key == short.Shorthand(false)) {
				at = p // it may stand there without its key
			}
			faults = append(faults, Of(f).validate(at, value)...)
			faults = append(faults, walk(at, value)...)
		}
	}
	return faults
}

func (l Limit) validate(p *field.Path, v reflect.Value) field.ErrorList {
	switch {
	case l.Required && empty(v):
		hint := l.hint
		if hint == "" && len(l.Enum) > 0 {
			hint = "one of " + strings.Join(l.Enum, ", ")
		}
		return field.ErrorList{field.Required(p, hint)}
	case v.Kind() == reflect.Pointer && v.IsNil(), v.Kind() == reflect.String && v.Len() == 0:
		return nil
	case v.Kind() == reflect.Slice:
		var faults field.ErrorList
		for i := range v.Len() {
			if faults = append(faults, l.single(p.Index(i), v.Index(i))...); len(l.Enum) == 0 {
				continue
			}
			for j := range i {
				if v.Index(j).Equal(v.Index(i)) {
					faults = append(faults, field.Duplicate(p.Index(i), v.Index(i).Interface()))
					break
				}
			}
		}
		return faults
	case v.Kind() == reflect.Pointer:
		faults := l.single(p, v.Elem())
		for _, fault := range faults {
			fault.Detail += "; remove it to use the default"
		}
		return faults
	}
	return l.single(p, v)
}

// empty reports whether a value holds nothing.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	case reflect.Struct:
		for _, value := range v.Fields() {
			if !empty(value) {
				return false
			}
		}
		return true
	}
	return v.IsZero()
}

// single is the fault of one value.
func (l Limit) single(p *field.Path, v reflect.Value) field.ErrorList {
	if x, ok := v.Interface().(intstr.IntOrString); ok {
		v = reflect.ValueOf(x.IntVal)
		if x.Type == intstr.String {
			v = reflect.ValueOf(x.StrVal)
		}
	}
	shown, n := v.Interface(), 0.0
	switch d, isDuration := shown.(metav1.Duration); {
	case v.Kind() == reflect.String:
		return l.text(p, v.String())
	case isDuration:
		shown, n = d.Duration.String(), float64(d.Duration)
	case v.CanInt():
		n = float64(v.Int())
	case v.CanFloat():
		n = v.Float()
	}
	or, _, _ := strings.Cut(l.Or, " ")
	within := l.Minimum == "" || n >= Number(l.Minimum) && (l.Maximum == "" || n <= Number(l.Maximum))
	if within || or != "" && n == Number(or) {
		return nil
	}
	return field.ErrorList{field.Invalid(p, shown, "must be "+l.Range())}
}

func (l Limit) text(p *field.Path, s string) field.ErrorList {
	if len(l.Enum) > 0 && !slices.Contains(l.Enum, s) {
		return field.ErrorList{field.NotSupported(p, s, l.Enum)}
	}
	if l.Format == nil {
		return nil
	}
	var faults field.ErrorList
	for _, message := range l.Format.faults(s) {
		faults = append(faults, field.Invalid(p, s, message))
	}
	return faults
}
