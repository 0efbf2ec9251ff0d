package strictyaml

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// decoder walks YAML nodes and Go values together.
type decoder struct {
	doc    Document
	faults Faults
	fields map[reflect.Type]fieldSet
	nodes  int
	depth  int
	full   bool // maxNodes was reached and said
}

var durationType = reflect.TypeFor[time.Duration]()

func (d *decoder) fault(n *yaml.Node, path, format string, args ...any) {
	line := 1
	if n != nil && n.Line > 0 {
		line = n.Line
	}
	d.faults = append(d.faults, Fault{File: d.doc.file, Line: line, Path: path, Message: fmt.Sprintf(format, args...)})
}

// enter counts a value and follows its alias; it returns nil when the bounds are exceeded.
// Every call that returns a node is paired with leave.
func (d *decoder) enter(n *yaml.Node, path string) *yaml.Node {
	if !d.count(n, path) {
		return nil
	}
	if d.depth >= maxDepth {
		d.fault(n, path, "nested more than %d deep (or an anchor that holds an alias of itself)", maxDepth)
		return nil
	}
	d.depth++
	if n.Kind == yaml.AliasNode {
		n = n.Alias // never an alias itself: YAML has no anchors on aliases
	}
	return n
}

// count counts a value and says whether it may still be read.
func (d *decoder) count(n *yaml.Node, path string) bool {
	d.nodes++
	if d.nodes > maxNodes && !d.full {
		d.full = true
		d.fault(n, path, "more than %d values, counting what aliases expand to", maxNodes)
	}
	return !d.full
}

// note keeps the line of the value at path, unless the bounds are exceeded.
func (d *decoder) note(n *yaml.Node, path string) bool {
	if len(path) > maxPath {
		d.fault(n, path[:maxPath]+"...", "the path of a value must be at most %d characters long", maxPath)
		return false
	}
	if !d.count(n, path) {
		return false
	}
	d.doc.lines[path] = n.Line
	return true
}

func (d *decoder) leave() { d.depth-- }

// value decodes n into v, which is settable.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	if n = d.enter(n, path); n == nil {
		return
	}
	defer d.leave()

	if isNull(n) {
		if !empties(v.Type()) {
			d.fault(n, path, "must be %s, not null; give a value or remove the key", describe(v.Type()))
		}
		return
	}
	if v.Kind() == reflect.Pointer {
		fresh := reflect.New(v.Type().Elem())
		if !v.IsNil() {
			fresh.Elem().Set(v.Elem())
		}
		d.plain(n, fresh.Elem(), path)
		v.Set(fresh)
		return
	}
	d.plain(n, v, path)
}

// plain decodes n, which is neither an alias nor null, into v, which is no pointer.
func (d *decoder) plain(n *yaml.Node, v reflect.Value, path string) {
	if v.Type() == durationType {
		d.duration(n, v, path)
		return
	}
	switch u := v.Addr().Interface().(type) {
	case Shorthand:
		switch n.Kind {
		case yaml.ScalarNode:
			d.plain(n, reflect.ValueOf(u.Scalar()).Elem(), path)
		case yaml.SequenceNode:
			d.plain(n, reflect.ValueOf(u.List()).Elem(), path)
		default:
			d.structure(n, v, path)
		}
		return
	case json.Unmarshaler:
		d.unmarshalJSON(n, u, v.Type(), path)
		return
	case encoding.TextUnmarshaler:
		if d.scalar(n, v, path, "!!str", "!!timestamp") {
			if err := u.UnmarshalText([]byte(n.Value)); err != nil {
				d.fault(n, path, "%q is not %s: %v", clip(n.Value), describe(v.Type()), err)
			}
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Map:
		d.mapping(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.Interface:
		if x := d.raw(n, path); x != nil && v.NumMethod() == 0 {
			v.Set(reflect.ValueOf(x))
		}
	case reflect.String:
		if d.scalar(n, v, path, "!!str", "!!timestamp") {
			v.SetString(n.Value)
		}
	case reflect.Bool:
		if d.scalar(n, v, path, "!!bool") {
			v.SetBool(d.boolean(n, path))
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if d.scalar(n, v, path, "!!int") {
			d.integer(n, v, path)
		}
	case reflect.Float32, reflect.Float64:
		if d.scalar(n, v, path, "!!float", "!!int") {
			d.float(n, v, path)
		}
	default:
		d.fault(n, path, "cannot be set from a file (%s)", v.Type())
	}
}

// scalar faults a node that is no scalar of one of the tags.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string, tags ...string) bool {
	if n.Kind == yaml.ScalarNode && slices.Contains(tags, n.ShortTag()) {
		return true
	}
	hint := ""
	if tags[0] == "!!str" && n.Kind == yaml.ScalarNode {
		hint = "; put it in quotes"
	}
	d.fault(n, path, "must be %s, not %s%s", describe(v.Type()), found(n), hint)
	return false
}

// boolean reads true and false as YAML 1.2 writes them; its 1.1 also had yes, no, on and off.
func (d *decoder) boolean(n *yaml.Node, path string) bool {
	switch strings.ToLower(n.Value) {
	case "true":
		return true
	case "false":
	default:
		d.fault(n, path, "must be true or false, not %s", clip(n.Value))
	}
	return false
}

func (d *decoder) integer(n *yaml.Node, v reflect.Value, path string) {
	bits := v.Type().Bits()
	if v.CanUint() {
		var u uint64
		if err := n.Decode(&u); err != nil || v.OverflowUint(u) {
			d.fault(n, path, "must be a whole number from 0 to %d, not %s", uint64(math.MaxUint64)>>(64-bits), clip(n.Value))
			return
		}
		v.SetUint(u)
		return
	}
	var i int64
	if err := n.Decode(&i); err != nil || v.OverflowInt(i) {
		d.fault(n, path, "must be a whole number from %d to %d, not %s",
			int64(math.MinInt64)>>(64-bits), int64(math.MaxInt64)>>(64-bits), clip(n.Value))
		return
	}
	v.SetInt(i)
}

func (d *decoder) float(n *yaml.Node, v reflect.Value, path string) {
	var f float64
	if err := n.Decode(&f); err != nil || math.IsNaN(f) || math.IsInf(f, 0) || v.OverflowFloat(f) {
		d.fault(n, path, "must be a finite number, not %s", clip(n.Value))
		return
	}
	v.SetFloat(f)
}

func (d *decoder) duration(n *yaml.Node, v reflect.Value, path string) {
	if !d.scalar(n, v, path, "!!str") {
		return
	}
	parsed, err := time.ParseDuration(n.Value)
	if err != nil {
		d.fault(n, path, "%q is not %s: %v", clip(n.Value), describe(v.Type()), err)
		return
	}
	v.SetInt(int64(parsed))
}

// unmarshalJSON hands n to a type that decodes itself, as encoding/json would.
func (d *decoder) unmarshalJSON(n *yaml.Node, u json.Unmarshaler, t reflect.Type, path string) {
	faults := len(d.faults)
	x := d.raw(n, path)
	if len(d.faults) > faults {
		return
	}
	data, err := json.Marshal(x)
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		d.fault(n, path, "must be %s, not %s: %v", describe(t), found(n), err)
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.fault(n, path, "must be a list, not %s", found(n))
		return
	}
	items := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		if !d.note(item, at) {
			break
		}
		if isNull(item) {
			d.fault(item, at, "must be %s, not null; give a value or remove the item", describe(v.Type().Elem()))
			continue
		}
		d.value(item, items.Index(i), at)
	}
	v.Set(items)
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	t := v.Type()
	if t.Key().Kind() != reflect.String {
		d.fault(n, path, "cannot be set from a file (%s)", t)
		return
	}
	entries, ok := d.entries(n, path, indexed)
	if !ok {
		return
	}
	m := reflect.MakeMapWithSize(t, len(entries))
	for _, e := range entries {
		item := reflect.New(t.Elem()).Elem()
		d.value(e.value, item, e.path)
		m.SetMapIndex(reflect.ValueOf(e.key).Convert(t.Key()), item)
	}
	v.Set(m)
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, path string) {
	entries, ok := d.entries(n, path, dotted)
	if !ok {
		return
	}
	known := d.fieldsOf(v.Type())
	for _, e := range entries {
		index, ok := known.index[e.key]
		if !ok {
			d.faults = append(d.faults, Fault{File: d.doc.file, Line: e.line, Path: e.path,
				Message: "unknown key" + suggest(e.key, known.names), Unknown: true})
			continue
		}
		d.value(e.value, reach(v, index), e.path)
	}
}

// raw is n as the types that encoding/json decodes into any, with int64 for whole numbers.
func (d *decoder) raw(n *yaml.Node, path string) any {
	switch n.Kind {
	case yaml.MappingNode:
		entries, _ := d.entries(n, path, dotted)
		m := make(map[string]any, len(entries))
		for _, e := range entries {
			m[e.key] = d.rawChild(e.value, e.path)
		}
		return m
	case yaml.SequenceNode:
		items := make([]any, len(n.Content))
		for i, item := range n.Content {
			at := fmt.Sprintf("%s[%d]", path, i)
			if !d.note(item, at) {
				break
			}
			items[i] = d.rawChild(item, at)
		}
		return items
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!str", "!!timestamp":
		return n.Value
	case "!!bool":
		return d.boolean(n, path)
	case "!!int":
		var i int64
		if err := n.Decode(&i); err == nil {
			return i
		}
		fallthrough
	case "!!float":
		var f float64
		if err := n.Decode(&f); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
		d.fault(n, path, "must be a finite number, not %s", clip(n.Value))
		return nil
	}
	d.fault(n, path, "has the tag %s, which is not supported", n.ShortTag())
	return nil
}

func (d *decoder) rawChild(n *yaml.Node, path string) any {
	if n = d.enter(n, path); n == nil {
		return nil
	}
	defer d.leave()
	return d.raw(n, path)
}
