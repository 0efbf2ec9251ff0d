package valuesschema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
)

// module begins the import paths of the types that are looked into; what Kubernetes' types take, its API server says.
const module = "github.com/kube-node-ready/kube-node-ready/"

// property is where a value of the configuration stands in the schema.
type property struct {
	definition, name string
	// items says that the value is an element of the property, which is a list.
	items bool
}

// probe is a configuration that holds every key, with bad values: what the controller says to it is what the schema's limits
// are made of, so that no rule stands in two places.
type probe struct {
	text  string              // every string
	at    map[string]property // by path
	lists map[string]string   // path of a list of structs to their definition
	lacks map[string]string   // path of an element that lacks one key to that key
	depth map[reflect.Type]bool
	empty bool // lists have no elements
}

// The forms of what the controller says to a value.
var (
	rangeForm   = regexp.MustCompile(`: must be between (-?\d+) and (\d+)(?:$|; |, where )`)
	leastForm   = regexp.MustCompile(`: must be at least (-?\d+)(?:$|; )`)
	wordsForm   = regexp.MustCompile(`supported values: (.+)$`)
	wordForm    = regexp.MustCompile(`"([^"]*)"`)
	patternForm = regexp.MustCompile(`regex used for validation is '(.+)'\)`)
	lengthForm  = regexp.MustCompile(`(?:must be no|may not be) more than (\d+) (?:characters|bytes)`)
)

// limit adds to the definitions what the controller refuses: numbers out of range, words that there are not, names of another
// form or length, and keys that an entry of a list lacks. Rules about several values at once no schema can have.
func limit(definitions map[string]any) error {
	bad, p, err := said("?", false)
	if err != nil {
		return err
	}
	empty, _, err := said("", false)
	if err != nil {
		return err
	}
	long, _, err := said(strings.Repeat("a", 300), false)
	if err != nil {
		return err
	}
	refusesEmpty := map[property]bool{}
	for _, f := range empty {
		if where, ok := p.at[f.Path]; ok {
			refusesEmpty[where] = true
		}
	}
	limits := map[property]map[string]any{}
	learned := map[property]string{} // the path of the value that taught a limit
	conflict := map[property]bool{}
	learn := func(where property, keywords map[string]any) {
		if before, ok := limits[where]; ok && !reflect.DeepEqual(before, keywords) {
			conflict[where] = true // one type in two places, with other limits
		}
		limits[where] = keywords
	}
	for _, f := range bad {
		if where, ok := p.at[f.Path]; ok {
			if keywords := keywordsOf(f.Message, refusesEmpty[where]); keywords != nil {
				learn(where, keywords)
				if learned[where] == "" {
					learned[where] = f.Path
				}
			}
		}
	}
	for where := range conflict {
		delete(limits, where)
	}
	for _, text := range samples {
		if err := forgive(limits, learned, text); err != nil {
			return err
		}
	}
	for _, f := range long {
		where, known := p.at[f.Path]
		m := lengthForm.FindStringSubmatch(f.Message)
		if !known || m == nil || strings.Contains(f.Message, "name part") {
			continue // the length of a qualified name is its parts'
		}
		keywords := maps.Clone(limits[where])
		if keywords == nil {
			keywords = map[string]any{}
		}
		keywords["maxLength"] = number(m[1])
		limits[where] = keywords
	}
	hollow, lists, err := said("a", true)
	if err != nil {
		return err
	}
	for _, f := range hollow {
		if where, ok := lists.at[f.Path]; ok && strings.HasPrefix(f.Message, "Required value") && !where.items {
			limits[where] = map[string]any{"minItems": 1}
		}
	}
	for key, form := range config.ImageForms {
		limits[property{definition: definitionName(reflect.TypeFor[config.Image]()), name: key}] = map[string]any{"pattern": "^$|" + form.String()}
	}
	for where, keywords := range limits {
		if err := apply(definitions, where, keywords); err != nil {
			return err
		}
	}
	return require(definitions, bad, p)
}

// samples are of many forms of names, so that each limit meets some that it refuses.
var samples = []string{"a", "A", "1", "a.b", "a-b", "a_b", "a/b", "a.b/v1", "a/b/c", "/a", "a:1", "a=b"}

// forgive drops the limits that refuse a text which the controller takes: what it said was of a part of the value.
func forgive(limits map[property]map[string]any, learned map[property]string, text string) error {
	faults, _, err := said(text, false)
	if err != nil {
		return err
	}
	refused := map[string]bool{}
	for _, f := range faults {
		refused[f.Path] = true
	}
	for where, keywords := range limits {
		if refused[learned[where]] {
			continue
		}
		pattern, _ := keywords["pattern"].(string)
		either := strings.ReplaceAll(strings.ReplaceAll(pattern, "A-Za-z", "a-z"), "a-z", "A-Za-z")
		words, isEnum := keywords["enum"].([]any)
		switch {
		case pattern != "" && !regexp.MustCompile(pattern).MatchString(text) && regexp.MustCompile(either).MatchString(text):
			limits[where] = map[string]any{"pattern": either} // it looked at the name in lower case
		case pattern != "" && !regexp.MustCompile(pattern).MatchString(text), isEnum && !slices.Contains(words, any(text)):
			delete(limits, where)
		}
	}
	return nil
}

// said returns what the controller says to a probe whose strings are the text and whose lists may be empty, and the probe.
func said(text string, empty bool) (strictyaml.Faults, *probe, error) {
	p := &probe{text: text, empty: empty, at: map[string]property{}, lists: map[string]string{}, lacks: map[string]string{}, depth: map[reflect.Type]bool{}}
	document, err := json.Marshal(p.of(reflect.TypeFor[config.Config](), "", property{}))
	if err != nil {
		return nil, nil, err
	}
	_, err = config.Parse(document, "probe")
	var faults strictyaml.Faults
	if !errors.As(err, &faults) {
		return nil, nil, fmt.Errorf("a configuration of nothing but bad values: %w", err)
	}
	return faults, p, nil
}

// of is the value of a type at a path; nil for one that is left out.
func (p *probe) of(t reflect.Type, path string, where property) any {
	if _, leaf := leaves[t]; leaf || t.Kind() == reflect.Struct && (p.depth[t] || !strings.HasPrefix(t.PkgPath()+"/", module)) {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return p.of(t.Elem(), path, where)
	case reflect.String:
		p.at[path] = where
		return p.text
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Float32, reflect.Float64:
		p.at[path] = where
		return math.MinInt32
	case reflect.Slice:
		return p.list(t.Elem(), path, where)
	case reflect.Struct:
		p.depth[t] = true
		defer delete(p.depth, t)
		all := map[string]any{}
		p.fields(t, definitionName(t), path, all)
		return all
	}
	return nil
}

// list has an element of bad values and, of structs, one more without each of its keys.
func (p *probe) list(element reflect.Type, path string, where property) any {
	if p.empty {
		p.at[path] = where
		return []any{}
	}
	if element == reflect.TypeFor[checks.Spec]() {
		return p.checks(path)
	}
	where.items = true
	v := p.of(element, path+"[0]", where)
	switch {
	case v == nil:
		return nil
	case element.Kind() == reflect.Struct:
		p.lists[path] = definitionName(element)
		return p.without([]any{v}, path, v.(map[string]any))
	}
	return []any{v}
}

// without appends an element for each key of the full one that lacks this key.
func (p *probe) without(list []any, path string, full map[string]any) []any {
	for _, key := range slices.Sorted(maps.Keys(full)) {
		element := maps.Clone(full)
		delete(element, key)
		at := fmt.Sprintf("%s[%d]", path, len(list))
		p.lacks[at] = key
		for known, where := range maps.Clone(p.at) { // a key may count only where another is not there
			if rest, ok := strings.CutPrefix(known, path+"[0]."); ok {
				p.at[at+"."+rest] = where
			}
		}
		list = append(list, element)
	}
	return list
}

// checks has one check of each type, because a check's settings are those of its type.
func (p *probe) checks(path string) any {
	t := reflect.TypeFor[checks.Spec]()
	p.lists[path] = definitionName(t)
	var list []any
	for i, kind := range checks.Types() {
		at := fmt.Sprintf("%s[%d]", path, i)
		v := p.of(t, at, property{}).(map[string]any)
		for _, other := range checks.Types() {
			if other != kind {
				delete(v, string(other))
			}
		}
		v["type"] = kind
		delete(v, "dependsOn")
		list = append(list, v)
	}
	unknown := map[string]any{"name": p.text, "type": p.text}
	p.at[fmt.Sprintf("%s[%d].type", path, len(list))] = property{definition: definitionName(t), name: "type"}
	return p.without(append(list, unknown), path, unknown)
}

// fields adds the values of a struct's fields, those of embedded structs included, whose properties are the outer's.
func (p *probe) fields(t reflect.Type, definition, path string, all map[string]any) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case field.Anonymous && name == "":
			embedded := field.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			p.fields(embedded, definition, path, all)
		default:
			if v := p.of(field.Type, strings.TrimPrefix(path+"."+name, "."), property{definition: definition, name: name}); v != nil {
				all[name] = v
			}
		}
	}
}

// keywordsOf are the schema's words for what the controller says to a bad value.
func keywordsOf(message string, refusesEmpty bool) map[string]any {
	if m := rangeForm.FindStringSubmatch(message); m != nil {
		return map[string]any{"minimum": number(m[1]), "maximum": number(m[2])}
	}
	if m := leastForm.FindStringSubmatch(message); m != nil {
		return map[string]any{"minimum": number(m[1])}
	}
	if m := wordsForm.FindStringSubmatch(message); m != nil {
		var allowed []any
		if !refusesEmpty {
			allowed = append(allowed, "")
		}
		for _, word := range wordForm.FindAllStringSubmatch(m[1], -1) {
			allowed = append(allowed, word[1])
		}
		return map[string]any{"enum": allowed}
	}
	if m := patternForm.FindStringSubmatch(message); m != nil {
		pattern := "(?:" + m[1] + ")"
		if strings.Contains(message, ": name part must") { // of a qualified name, whose prefix is optional
			pattern = "(?:[^/]+/)?" + pattern
		}
		if !refusesEmpty {
			pattern = "(?:" + pattern + ")?"
		}
		return map[string]any{"pattern": "^" + pattern + "$"}
	}
	return nil
}

func number(text string) float64 {
	n, _ := strconv.ParseFloat(text, 64) // the forms let nothing else through
	return n
}

// properties are those of a definition, which may be one of several forms of a value.
func properties(definitions map[string]any, name string) map[string]any {
	definition, _ := definitions[name].(map[string]any)
	if forms, ok := definition["anyOf"].([]any); ok {
		definition, _ = forms[len(forms)-1].(map[string]any)
	}
	return definition
}

// apply adds keywords to a property.
func apply(definitions map[string]any, where property, keywords map[string]any) error {
	all, _ := properties(definitions, where.definition)["properties"].(map[string]any)
	schema, ok := all[where.name].(map[string]any)
	if !ok {
		return fmt.Errorf("the schema has no property %s of %s", where.name, where.definition)
	}
	schema = maps.Clone(schema) // types share theirs
	if where.items {
		items, ok := schema["items"].(map[string]any)
		if !ok {
			return fmt.Errorf("property %s of %s is no list", where.name, where.definition)
		}
		items = maps.Clone(items)
		maps.Copy(items, keywords)
		schema["items"] = items
	} else {
		maps.Copy(schema, keywords)
	}
	all[where.name] = schema
	return nil
}

// require adds the keys that an entry of a list must have: those that the controller misses where the others are there, because
// some are needed only in place of another.
func require(definitions map[string]any, faults strictyaml.Faults, p *probe) error {
	needs := map[string][]string{}
	for _, f := range faults {
		dot := strings.LastIndex(f.Path, ".")
		if dot < 0 || !strings.HasPrefix(f.Message, "Required value") {
			continue
		}
		element, key := f.Path[:dot], f.Path[dot+1:]
		index, _, _ := strings.Cut(element[strings.LastIndex(element, "[")+1:], "]")
		definition, known := p.lists[strings.TrimSuffix(element, "["+index+"]")]
		// A key that no probe has, of a type of Kubernetes, is missed in the first element already.
		if known && (p.lacks[element] == key || index == "0") && !slices.Contains(needs[definition], key) {
			needs[definition] = append(needs[definition], key)
		}
	}
	for definition, names := range needs {
		slices.Sort(names)
		d := properties(definitions, definition)
		if d == nil {
			return fmt.Errorf("the schema has no definition %s", definition)
		}
		d["required"] = names
	}
	return nil
}
