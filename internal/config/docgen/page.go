package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/limits"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/daemonsets"
)

//go:embed intro.md
var intro string

// reference is the Kubernetes API's, of the version that this module is built with.
const reference = "https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#"

const header = "| key | type | default | meaning |\n|---|---|---|---|\n"

// checks is the folder whose types get tables of their own: there are many, and a file
// seldom needs more than a few.
const checks = module + "internal/worker/checks"

type generator struct {
	out  bytes.Buffer
	root string
	// comments are those of the structs of this module's packages and their fields: by package path, then by Type or
	// Type.Field.
	comments map[string]map[string]string
	// homes is where the keys of a struct type were listed, for the second place it appears in.
	homes map[reflect.Type]string
	// later holds the structs that get a table of their own after the current one.
	later []table
}

// table is the keys of a struct under a heading.
type table struct {
	heading string
	value   reflect.Value
}

// page is the whole of docs/reference/configuration.md.
func page(root string) ([]byte, error) {
	g := &generator{root: root, comments: map[string]map[string]string{}, homes: map[reflect.Type]string{}}
	g.out.WriteString("<!-- Written by go run ./internal/config/docgen (make docs). " +
		"Change the comments in the sources instead. -->\n\n")
	g.out.WriteString(intro)
	c := &config.Config{}
	c.SetDefaults()
	v := reflect.ValueOf(c).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if jsonName(f) == "" || !f.IsExported() {
			continue
		}
		if err := g.section(v, f); err != nil {
			return nil, err
		}
	}
	return g.out.Bytes(), nil
}

func (g *generator) section(config reflect.Value, f reflect.StructField) error {
	comment, err := g.comment(config.Type(), f)
	if err != nil {
		return err
	}
	key := jsonName(f)
	fmt.Fprintf(&g.out, "\n## %s\n\n%s\n\n%s", key, wrapped(meaning(comment, config.Type(), f.Name, key, "")), header)
	v, prefix := config.FieldByIndex(f.Index), key+"."
	if v.Kind() == reflect.Slice {
		v, prefix = reflect.Zero(v.Type().Elem()), key+"[]."
	}
	if err := g.rows(v, prefix, ""); err != nil {
		return err
	}
	for len(g.later) > 0 {
		next := g.later[0]
		g.later = g.later[1:]
		fmt.Fprintf(&g.out, "\n### %s\n\n%s", next.heading, header)
		if err := g.rows(next.value, "", next.heading); err != nil {
			return err
		}
	}
	return nil
}

// wrapped breaks a paragraph into lines of at most 120 characters.
func wrapped(paragraph string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(paragraph) {
		if line != "" && len(line)+1+len(word) > 120 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return strings.Join(append(lines, line), "\n")
}

// rows lists the keys of a struct, and after each key those of what it holds. The keys are
// written with the prefix, and are in the file at home.
func (g *generator) rows(v reflect.Value, prefix, home string) error {
	for _, f := range reflect.VisibleFields(v.Type()) {
		name := jsonName(f)
		if name == "" || !f.IsExported() {
			continue
		}
		owner := v.Type()
		if len(f.Index) > 1 { // of an embedded struct
			owner = owner.FieldByIndex(f.Index[:len(f.Index)-1]).Type
		}
		comment, err := g.comment(owner, f)
		if err != nil {
			return err
		}
		if err := g.row(v.FieldByIndex(f.Index), owner, f, prefix+name, home, comment); err != nil {
			return err
		}
	}
	return nil
}

func (g *generator) row(v reflect.Value, owner reflect.Type, f reflect.StructField, path, home, comment string) error {
	inner, at := v.Type(), path
	switch inner.Kind() {
	case reflect.Slice:
		inner, at = inner.Elem(), path+"[]"
	case reflect.Pointer:
		inner = inner.Elem()
	}
	nested := inner.Kind() == reflect.Struct && strings.HasPrefix(inner.PkgPath(), module)
	value, column := "", ""
	if !nested || v.Kind() == reflect.Slice {
		var err error
		if value, column, err = defaultOf(v, comment); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	text := meaning(comment, owner, f.Name, path[strings.LastIndexByte(path, '.')+1:], value)
	first, listed := g.homes[inner]
	apart := nested && strings.HasPrefix(inner.PkgPath(), checks)
	switch {
	case nested && listed:
		text += fmt.Sprintf(" Its keys are those of `%s`.", first)
	case apart:
		text += " Its keys are below."
	}
	fmt.Fprintf(&g.out, "| `%s` | %s | %s | %s |\n", path, typeName(v.Type())+limit(f), column, text)
	if !nested || listed {
		return nil
	}
	if home != "" {
		at = home + "." + at
	}
	g.homes[inner] = at
	if v.Type() != inner {
		v = reflect.Zero(inner)
	}
	if apart {
		g.later = append(g.later, table{heading: at, value: v})
		return nil
	}
	return g.rows(v, at+".", home)
}

// defaultOf is the default that a value really has, as such and as the column shows it, and
// an error if the comment does not say so. Where there is none to be seen, because it is
// made later, the comment counts.
func defaultOf(v reflect.Value, comment string) (value, column string, err error) {
	stated, prose := statedDefault(comment)
	real := printed(v)
	if real != "" && stated != real {
		return "", "", fmt.Errorf("the default is %q, its comment says %q", real, stated)
	}
	if stated == "" || prose {
		return stated, stated, nil
	}
	return stated, "`" + stated + "`", nil
}

// printed is a value as a file would have it; empty for none.
func printed(v reflect.Value) string {
	if v.IsZero() {
		return ""
	}
	switch x := v.Interface().(type) {
	case *intstr.IntOrString:
		return x.String()
	case metav1.Duration:
		return short(x.Duration)
	case []marks.Taint:
		var all []string
		for _, t := range x {
			all = append(all, fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect))
		}
		return strings.Join(all, ", ")
	}
	if v.Kind() == reflect.Slice { // JSON is YAML on one line
		b, err := json.Marshal(v.Interface())
		if err != nil {
			panic(err) // API types only
		}
		return string(b)
	}
	if v.Kind() == reflect.Pointer {
		return fmt.Sprint(v.Elem().Interface())
	}
	return fmt.Sprint(v.Interface())
}

// short writes 1h and not 1h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// limit is what a field takes of its type.
func limit(f reflect.StructField) string {
	l, text := limits.Of(f), ""
	switch {
	case len(l.Enum) > 0:
		text = "one of `" + strings.Join(l.Enum, "`, `") + "`"
	case f.Type == reflect.TypeFor[*intstr.IntOrString](): // the type says it
	case l.Format != nil:
		text = l.Format.Name
	default:
		text = l.Range()
	}
	_, omit, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case text != "" && f.Type.Kind() == reflect.Slice:
		text = ", each " + text
	case text != "":
		text = ", " + text
	}
	if l.Required && omit == "" {
		text += ", required"
	}
	return text
}

// typeName is a type in the file's terms; a type of the Kubernetes API is linked.
func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return "duration"
	case reflect.TypeFor[intstr.IntOrString]():
		return "number or percentage"
	case reflect.TypeFor[daemonsets.Settings]():
		return "string, list or mapping"
	case reflect.TypeFor[resource.Quantity]():
		return "quantity"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Slice:
		return "list of " + typeName(t.Elem())
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return "mapping"
		}
		return "map of " + typeName(t.Elem())
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Struct:
		if strings.HasPrefix(t.PkgPath(), module) {
			return "mapping"
		}
		group := "core"
		if strings.HasSuffix(t.PkgPath(), "/meta/v1") {
			group = "meta"
		}
		return fmt.Sprintf("[%s](%s%s-v1-%s)", t.Name(), reference, strings.ToLower(t.Name()), group)
	}
	return "integer"
}

// jsonName is the key of a field; empty for one that the file does not set.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return strings.TrimPrefix(name, "-")
}
