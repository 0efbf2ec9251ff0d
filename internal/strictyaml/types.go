package strictyaml

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// fieldSet is the keys that a struct type reads.
type fieldSet struct {
	names []string // sorted
	index map[string][]int
}

// fieldsOf lists t's keys by encoding/json's rules: a field's json tag, else its Go name;
// embedded structs without a name of their own are inlined, and a shallower field hides a
// deeper one.
func (d *decoder) fieldsOf(t reflect.Type) fieldSet {
	if set, ok := d.fields[t]; ok {
		return set
	}
	set := fieldSet{index: map[string][]int{}}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || inlined(f) || !f.IsExported() || hidden(t, f.Index) {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if prior, ok := set.index[name]; ok && len(prior) <= len(f.Index) {
			continue
		}
		if _, ok := set.index[name]; !ok {
			set.names = append(set.names, name)
		}
		set.index[name] = f.Index
	}
	slices.Sort(set.names)
	d.fields[t] = set
	return set
}

// inlined says whether f's own keys stand in for f.
func inlined(f reflect.StructField) bool {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return f.Anonymous && name == "" && t.Kind() == reflect.Struct
}

// hidden says whether a field lies within an embedded struct that has a key of its own, in
// which case that key, and not the struct around it, reads it.
func hidden(t reflect.Type, index []int) bool {
	for depth := 1; depth < len(index); depth++ {
		if !inlined(t.FieldByIndex(index[:depth])) {
			return true
		}
	}
	return false
}

// reach is v's field at index, allocating embedded pointers on the way.
func reach(v reflect.Value, index []int) reflect.Value {
	for _, i := range index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v
}

// customised says whether t decodes itself.
func customised(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// empties says whether a null can stand for a value of type t: it is a section or list whose
// lines are all commented out.
func empties(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		return !customised(t)
	case reflect.Map, reflect.Slice, reflect.Interface:
		return true
	}
	return false
}

// describe says in a file's terms what a value of type t is. The Kubernetes types are
// matched by name because the worker must not link the packages that define them.
func describe(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.PkgPath() + "." + t.Name() {
	case "time.Duration", "k8s.io/apimachinery/pkg/apis/meta/v1.Duration":
		return `a duration such as "30s" or "1h"`
	case "k8s.io/apimachinery/pkg/api/resource.Quantity":
		return `a quantity such as 100m, 1.5 or "64Mi"`
	case "k8s.io/apimachinery/pkg/util/intstr.IntOrString":
		return `a whole number or a string such as "20%"`
	case "k8s.io/apimachinery/pkg/apis/meta/v1.Time":
		return `a time such as "2006-01-02T15:04:05Z"`
	}
	if customised(t) {
		return "a valid " + t.Name()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Struct, reflect.Map:
		return "a mapping"
	case reflect.Slice:
		return "a list"
	case reflect.Interface:
		return "a value"
	}
	return "a whole number"
}

// found says what the file holds in place of what was wanted.
func found(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	text := clip(n.Value)
	switch n.ShortTag() {
	case "!!null":
		return "null"
	case "!!str", "!!timestamp":
		return fmt.Sprintf("the string %q", text)
	case "!!bool":
		return "the boolean " + text
	case "!!int", "!!float":
		return "the number " + text
	}
	return "a value with the tag " + n.ShortTag()
}

// clip cuts a value to what a message repeats of it.
func clip(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}
