// Package strictyaml decodes a YAML document into Go types by their json tags and reports
// every fault in it, each with its path and its line.
//
// It exists because the usual way (YAML to JSON to encoding/json) loses the line numbers,
// stops at the first fault, ignores the case of keys, and lets null and duplicate keys pass.
// Types of the Kubernetes API decode as they do in a manifest: json tags, inlined structs,
// and json.Unmarshaler (resource.Quantity, intstr.IntOrString, metav1.Duration, ...).
//
// The worker uses this package, so it imports nothing of the Kubernetes API or its clients.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxBytes bounds a document: the size that the API server allows a ConfigMap
	// (MaxSecretSize in k8s.io/kubernetes pkg/apis/core, which ConfigMaps share).
	MaxBytes = 1 << 20
	// maxNodes bounds the values of a document after its aliases are followed, so that nested
	// aliases of a few bytes each cannot expand into billions of values.
	maxNodes = 50_000
	// maxDepth bounds nesting, far beyond what any Kubernetes type needs.
	maxDepth = 100
	// maxPath bounds the length of a value's path in bytes, because each value's is kept.
	maxPath = 1024
)

// Shorthand is a struct that a file may also write as a scalar or a list, in place of a mapping.
type Shorthand interface {
	// Scalar returns a pointer to what a scalar sets.
	Scalar() any
	// List returns a pointer to the slice that a list sets.
	List() any
}

// Document is where the values of a decoded file are, for faults that are found later.
type Document struct {
	file  string
	lines map[string]int
}

// Decode reads the single YAML document in data into the struct that into points to and
// returns every fault. Values that are absent from the document keep what into held before,
// so defaults set beforehand survive and an explicit zero does not become a default; lists
// and maps that are present are replaced whole. An empty document is no fault.
//
// A null stands for an absent struct, list, map or any, and is a fault for every other type. Fields of type any receive string, bool, int64, float64, []any or map[string]any.
// file is only used in messages. Decode panics if into is not a pointer to a struct.
func Decode(data []byte, file string, into any) (Document, Faults) {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("strictyaml: Decode into %T, want a pointer to a struct", into))
	}
	d := &decoder{doc: Document{file: file, lines: map[string]int{}}, fields: map[reflect.Type]fieldSet{}}
	root := d.parse(data)
	if root != nil && !isNull(root) {
		d.value(root, v.Elem(), "")
	}
	return d.doc, d.faults.sorted()
}

// Line is the line, counted from 1, of the value with the given path, or of the nearest
// value around it that the file holds. Paths are written as field.Path writes them.
func (d Document) Line(path string) int {
	for path != "" {
		if line, ok := d.lines[path]; ok {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 1
}

// Holds says whether the document itself sets the value with the given path.
func (d Document) Holds(path string) bool {
	_, ok := d.lines[path]
	return ok
}

// Locate turns validation errors into faults with the lines they are about.
func (d Document) Locate(errs field.ErrorList) Faults {
	var faults Faults
	for _, err := range errs {
		faults = append(faults, Fault{File: d.file, Line: d.Line(err.Field), Path: err.Field, Message: err.ErrorBody()})
	}
	return faults.sorted()
}

// yamlLine finds the line in a message of the YAML parser, which has no typed errors.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// parse returns the root value of data's document, nil if there is none or it cannot be read.
func (d *decoder) parse(data []byte) *yaml.Node {
	if len(data) > MaxBytes {
		d.fault(nil, "", "is %d bytes long, must be at most %d", len(data), MaxBytes)
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var root *yaml.Node
	for {
		var doc yaml.Node
		if err := dec.Decode(&doc); err != nil {
			if !errors.Is(err, io.EOF) {
				d.syntax(err)
				return nil
			}
			return root
		}
		if len(doc.Content) == 0 || isNull(doc.Content[0]) {
			continue
		}
		if root != nil {
			d.fault(doc.Content[0], "", "a second document starts here; the file must hold one")
			return root
		}
		root = doc.Content[0]
	}
}

func (d *decoder) syntax(err error) {
	message := err.Error()
	line := 1
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		message = message[len(m[0]):]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
	}
	d.faults = append(d.faults, Fault{File: d.doc.file, Line: line, Message: "not YAML: " + message})
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}
