// Package strictyaml decodes a YAML document into Go types by their json tags and reports every fault in it, each with
// its path and its line. Decoding by way of encoding/json would lose the lines, stop at the first fault, ignore the
// case of keys, and accept null and duplicate keys. Here the YAML nodes are walked once beside the Go types, and what
// is right is decoded by sigs.k8s.io/json, as manifests are.
package strictyaml

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

const (
	// MaxBytes bounds a document: what the API server allows a ConfigMap (MaxSecretSize in k8s.io/kubernetes
	// pkg/apis/core).
	MaxBytes = 1 << 20
	maxNodes = 50_000 // values once aliases are followed: a few bytes of nested aliases can stand for billions
	maxPath  = 1024   // bytes of a value's path, because each value's is kept; bounds the depth as well
)

// Fault is one error in a file.
type Fault struct {
	File    string // its name as it was given to Decode
	Line    int    // counts from 1
	Path    string // of the value, as in worker.checks[2].timeoutSeconds; empty for the whole file
	Message string // what is wrong and what would be right
	Unknown bool   // whether Path names a key that nothing reads
}

// Error is the fault on one line, as in "config.yaml:12: worker.scheduling: must be ...".
func (f Fault) Error() string {
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, strings.TrimPrefix(f.Path+": "+f.Message, ": "))
}

// Faults are all errors of a file, in the order of its lines.
type Faults []Fault

// Error is one line per fault.
func (f Faults) Error() string {
	var lines []string
	for _, fault := range f {
		lines = append(lines, fault.Error())
	}
	return strings.Join(lines, "\n")
}

// Shorthand is a struct that a file may also write as a list or a scalar, which sets the key that Shorthand returns.
type Shorthand interface{ Shorthand(list bool) (key string) }

// Document is a decoded file.
type Document struct {
	Faults Faults // found by Decode
	file   string
	lines  map[string]int // by path
	nodes  int
}

// Decode reads the single YAML document in data into the struct that into points to. Absent and invalid keys keep their
// values, so defaults that were set before survive, and an explicit zero is kept. Lists, maps and targets of pointers
// are replaced as a whole. A null stands for an absent struct, list, map or any, and is a fault for every other type.
// An any receives string, bool, int64, float64, a slice or map.
func Decode(data []byte, file string, into any) *Document {
	d := &Document{file: file, lines: map[string]int{}}
	if root := d.parse(data); root != nil {
		if tree, ok := d.value(root, reflect.ValueOf(into).Elem(), "", root.Line); ok {
			text, unfit := json.Marshal(tree)
			strict, err := kjson.UnmarshalStrict(text, into)
			if err := errors.Join(append(strict, unfit, err)...); err != nil { // the parts are right, and the whole is not
				d.fault(root.Line, "", "%v", err)
			}
		}
	}
	return d
}

// Err is what is wrong with the document, with the faults that a validation found in its values: nil, or
// Faults. Nothing more is said of values that could not be read, or are within such a one.
func (d *Document) Err(invalid field.ErrorList) error {
	all := slices.Clone(d.Faults)
	for _, e := range invalid {
		if slices.ContainsFunc(d.Faults, func(f Fault) bool {
			return strings.HasPrefix(e.Field+".", f.Path+".") || strings.HasPrefix(e.Field, f.Path+"[")
		}) {
			continue
		}
		near := e.Field // the nearest value around it that the file holds
		for near != "" && d.lines[near] == 0 {
			near = near[:max(strings.LastIndexAny(near, ".["), 0)]
		}
		all = append(all, Fault{File: d.file, Line: max(d.lines[near], 1), Path: e.Field, Message: e.ErrorBody()})
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	return all
}

func (d *Document) fault(line int, path, format string, args ...any) {
	d.Faults = append(d.Faults, Fault{File: d.file, Line: max(line, 1), Path: path, Message: fmt.Sprintf(format, args...)})
}

// parse returns the root value of data's document, nil if there is none or it cannot be read.
func (d *Document) parse(data []byte) (root *yaml.Node) {
	if len(data) > MaxBytes {
		d.fault(1, "", "is %d bytes long, must be at most %d", len(data), MaxBytes)
		return nil
	}
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		switch err := decoder.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return root
		case err != nil:
			message, line := strings.TrimPrefix(err.Error(), "yaml: "), 0
			_, _ = fmt.Sscanf(message, "line %d: ", &line) // the parser has no typed errors
			d.fault(line, "", "not YAML: %s", strings.TrimPrefix(message, fmt.Sprintf("line %d: ", line)))
			return nil
		case len(doc.Content) == 0 || isNull(doc.Content[0]):
		case root != nil:
			d.fault(doc.Content[0].Line, "", "a second document starts here; the file must hold one")
			return root
		default:
			root = doc.Content[0]
		}
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// within keeps the line of the value at path, and reports whether the bounds let it be read.
func (d *Document) within(line int, path string) bool {
	if d.nodes++; d.nodes == maxNodes || len(path) > maxPath {
		d.fault(line, path[:min(len(path), maxPath)], "too large: a file may have at most %d values, including expanded "+
			"aliases, each with a path of at most %d characters", maxNodes, maxPath)
		return false
	}
	d.lines[path] = line
	return d.nodes < maxNodes
}

// value is n as encoding/json has it, for a target like v; false for one that is absent or at fault.
func (d *Document) value(n *yaml.Node, v reflect.Value, path string, line int) (any, bool) {
	if !d.within(line, path) {
		return nil, false
	}
	n = cmp.Or(n.Alias, n) // which is none itself: YAML has no anchors on aliases
	form := formOf(v.Type())
	switch {
	case isNull(n) && form != reflect.Invalid && form != reflect.Interface:
		return nil, false // a section or list whose lines are all commented out
	case v.Kind() == reflect.Pointer: // a new one, for the old may point to a default's own variable
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if short, is := v.Addr().Interface().(Shorthand); is && n.Kind != yaml.MappingNode {
		key := short.Shorthand(n.Kind == yaml.SequenceNode)
		x, ok := d.value(n, fields(v)[key], path, line)
		return map[string]any{key: x}, ok
	}
	element := v.Type()
	if form == reflect.Map || form == reflect.Slice {
		element = element.Elem()
		v.SetZero() // replaced whole, where JSON would add to what is there
	}
	switch {
	case form == reflect.Struct:
		return d.mapping(n, path, "%s.%s", fields(v), nil, map[string]any{}, map[string]int{})
	case form == reflect.Map:
		return d.mapping(n, path, "%s[%s]", nil, element, map[string]any{}, map[string]int{})
	case form == reflect.Slice || form == reflect.Interface && n.Kind == yaml.SequenceNode:
		return d.list(n, element, path)
	case form == reflect.Interface && n.Kind == yaml.MappingNode:
		return d.mapping(n, path, "%s.%s", nil, element, map[string]any{}, map[string]int{})
	}
	return d.single(n, element, path)
}

// single is a value that is neither a section nor a list; decoding it shows whether it is right.
func (d *Document) single(n *yaml.Node, t reflect.Type, path string) (x any, ok bool) {
	tag, err := n.ShortTag(), n.Decode(&x)
	if tag == "!!timestamp" {
		x = n.Value
	}
	text, unfit := json.Marshal(x)
	ok = err == nil && unfit == nil && kinds[tag] != "" && (tag != "!!null" || t.Kind() == reflect.Interface) &&
		kjson.UnmarshalCaseSensitivePreserveInts(text, reflect.New(t).Interface()) == nil
	if !ok {
		return d.wrong(n, t, path)
	}
	return x, true
}

func (d *Document) list(n *yaml.Node, element reflect.Type, path string) (any, bool) {
	if n.Kind != yaml.SequenceNode {
		return d.wrong(n, reflect.TypeFor[[]any](), path)
	}
	items := make([]any, len(n.Content)) // one at fault stays null
	for i, item := range n.Content {
		if at := fmt.Sprintf("%s[%d]", path, i); isNull(item) && element.Kind() != reflect.Interface {
			_, _ = d.wrong(item, element, at)
		} else {
			items[i], _ = d.value(item, reflect.New(element).Elem(), at, item.Line)
		}
	}
	return items, true
}

// mapping reads the keys of n into m, each for its own target or a new one of type each, and their lines
// into set. A merge ("<<") comes last: the first that sets a key wins (https://yaml.org/type/merge.html).
func (d *Document) mapping(n *yaml.Node, path, form string, targets map[string]reflect.Value, each reflect.Type,
	m map[string]any, set map[string]int) (any, bool) {
	if n.Kind != yaml.MappingNode {
		return d.wrong(n, reflect.TypeFor[map[string]any](), path)
	}
	merges, own := []*yaml.Node(nil), map[string]bool{}
	for i := 0; i+1 < len(n.Content) && d.nodes < maxNodes; i += 2 {
		key, value, line := cmp.Or(n.Content[i].Alias, n.Content[i]), n.Content[i+1], n.Content[i].Line
		at := strings.TrimPrefix(fmt.Sprintf(form, path, key.Value), ".")
		target := targets[key.Value]
		if each != nil {
			target = reflect.New(each).Elem()
		}
		switch tag, first := key.ShortTag(), set[key.Value]; {
		case tag == "!!merge":
			if value.Kind != yaml.SequenceNode {
				value = &yaml.Node{Content: []*yaml.Node{value}}
			}
			merges = append(merges, value.Content...)
		case key.Kind != yaml.ScalarNode || kinds[tag] != kinds["!!str"]:
			d.fault(line, path, "a key must be a string, not %s", found(key))
		case own[key.Value]:
			d.fault(line, at, "is set twice, first in line %d", first)
		case first > 0:
			d.within(first, at) // looked at, and so counted
		default:
			set[key.Value], own[key.Value] = line, true
			if !target.IsValid() {
				d.fault(line, at, "unknown key%s", Suggest(key.Value, slices.Sorted(maps.Keys(targets))))
				d.Faults[len(d.Faults)-1].Unknown = true
			} else if x, ok := d.value(value, target, at, line); ok {
				m[key.Value] = x
			}
		}
	}
	for _, merge := range merges {
		if d.within(d.lines[path], path) {
			d.mapping(cmp.Or(merge.Alias, merge), path, form, targets, each, m, set)
		}
	}
	return m, true
}

// fields are v's by encoding/json's rules, where a shallower field hides one of an embedded struct.
func fields(v reflect.Value) map[string]reflect.Value {
	own, all := map[string]reflect.Value{}, map[string]reflect.Value{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct {
			maps.Copy(all, fields(v.Field(i)))
		} else if f.IsExported() && name != "-" {
			own[cmp.Or(name, f.Name)] = v.Field(i)
		}
	}
	maps.Copy(all, own)
	return all
}

// formOf is how a value of type t is written; Invalid is a single value, as of a type that decodes itself.
func formOf(t reflect.Type) reflect.Kind {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	many := slices.Contains([]reflect.Kind{reflect.Struct, reflect.Map, reflect.Slice, reflect.Interface}, t.Kind())
	if !many || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return reflect.Invalid
	}
	return t.Kind()
}

// kinds are types of Go and tags of YAML in a file's terms; Kubernetes' types by name, to link none of them.
var kinds = map[string]string{
	"v1.Duration": `a duration such as "30s" or "1h"`, "resource.Quantity": `a quantity such as 100m, 1.5 or "64Mi"`,
	"intstr.IntOrString": `a whole number or a string such as "20%"`,
	"string":             "a string", "bool": "true or false", "int": "a whole number", "uint": "a whole number from 0",
	"float": "a finite number", "interface": "a finite number or another plain value",
	"struct": "a mapping", "map": "a mapping", "slice": "a list",
	"!!map": "a mapping", "!!seq": "a list", "!!null": "null",
	"!!str": "the string", "!!timestamp": "the string", "!!bool": "the boolean", "!!int": "the number",
	"!!float": "the number",
}

// wrong says that n is not what a value of type t is written as.
func (d *Document) wrong(n *yaml.Node, t reflect.Type, path string) (any, bool) {
	kind, hint := t.Kind().String(), ""
	switch {
	case isNull(n):
		hint = "; give a value or remove it"
	case n.Kind == yaml.ScalarNode && kind == "string":
		hint = "; put it in quotes"
	case strings.Contains(kind, "int") && n.ShortTag() == "!!int":
		hint = fmt.Sprintf(", which does not fit %d bits", t.Bits())
	}
	want := cmp.Or(kinds[t.String()], kinds[strings.TrimRight(kind, "0123456789")])
	d.fault(n.Line, path, "must be %s, not %s%s", want, found(n), hint)
	return nil, false
}

// found says what the file holds.
func found(n *yaml.Node) string {
	switch kind := cmp.Or(kinds[n.ShortTag()], "the tag "+n.ShortTag()); {
	case kind == kinds["!!str"]:
		return fmt.Sprintf("%s %.60q", kind, n.Value)
	case n.Kind != yaml.ScalarNode || isNull(n):
		return kind
	default:
		return fmt.Sprintf("%s %.60s", kind, n.Value)
	}
}

// Suggest is the end of a message about an unknown key or name: the most similar known name, or else some known names.
func Suggest(key string, known []string) string {
	best, least := "", min(2+len(key)/3, 5)
	for _, name := range known {
		if d := distance(strings.ToLower(key), strings.ToLower(name), least); d < least {
			best, least = name, d
		}
	}
	if best == "" {
		return "; known here: " + strings.Join(known[:min(len(known), 15)], ", ")
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance is how many bytes to insert, delete or replace to make b of a, at most so many.
func distance(a, b string, most int) int {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	if a == "" || b == "" || most == 0 {
		return min(len(a)+len(b), most)
	}
	return 1 + min(distance(a[1:], b[1:], most-1), distance(a[1:], b, most-1), distance(a, b[1:], most-1))
}
