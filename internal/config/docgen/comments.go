package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
)

const module = "github.com/kube-node-ready/kube-node-ready/"

// comment is the doc comment of a field of t, or else of the field's type. A field without either is an error: a key
// that nobody explains is not finished.
func (g *generator) comment(t reflect.Type, f reflect.StructField) (string, error) {
	inner := f.Type
	if inner.Kind() == reflect.Pointer {
		inner = inner.Elem()
	}
	for _, place := range []struct{ pkg, name string }{
		{t.PkgPath(), t.Name() + "." + f.Name},
		{inner.PkgPath(), inner.Name()},
	} {
		if !strings.HasPrefix(place.pkg, module) {
			continue
		}
		if _, ok := g.comments[place.pkg]; !ok {
			found, err := readComments(filepath.Join(g.root, strings.TrimPrefix(place.pkg, module)))
			if err != nil {
				return "", err
			}
			g.comments[place.pkg] = found
		}
		if text := g.comments[place.pkg][place.name]; text != "" {
			// Settings of a type of check, or of a kind of prerequisite, are called by its name.
			return regexp.MustCompile(`^Settings\b`).ReplaceAllString(text, f.Name), nil
		}
	}
	return "", fmt.Errorf("%s.%s.%s has no comment", t.PkgPath(), t.Name(), f.Name)
}

func readComments(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, entry.Name()), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if group, ok := n.(*ast.GenDecl); ok && len(group.Specs) == 1 { // where a lone type has its comment
				if spec, ok := group.Specs[0].(*ast.TypeSpec); ok {
					fields[spec.Name.Name] = oneLine(group.Doc)
				}
			}
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if body, ok := spec.Type.(*ast.StructType); ok {
				shared := "" // a comment can speak for the fields below it too, if it names them
				for _, f := range body.Fields.List {
					for _, name := range f.Names {
						text := oneLine(f.Doc)
						if text == "" && regexp.MustCompile(`\b`+name.Name+`\b`).MatchString(shared) {
							text = shared
						}
						shared = text
						fields[spec.Name.Name+"."+name.Name] = text
					}
				}
			}
			return false
		})
	}
	return fields, nil
}

func oneLine(doc *ast.CommentGroup) string { return strings.Join(strings.Fields(doc.Text()), " ") }

// meaning converts a comment to the text on the page. Go names of keys become the keys. A sentence that only states the
// default is left out, because the page has a column for it.
func meaning(comment string, t reflect.Type, fieldName, key, value string) string {
	text := comment
	for i := range t.NumField() {
		f := t.Field(i)
		name := jsonName(f)
		if name == "" {
			continue
		}
		if f.Name == fieldName {
			text = regexp.MustCompile(`^`+fieldName+`\b`).ReplaceAllString(text, "`"+key+"`")
		}
		if camel.MatchString(f.Name) { // a single word may be just that word
			text = regexp.MustCompile(`\b`+f.Name+`\b`).ReplaceAllString(text, "`"+name+"`")
		}
	}
	if value != "" {
		text = strings.ReplaceAll(text, "Default "+value+".", "")
		text = strings.ReplaceAll(text, "Default: "+value+".", "")
	}
	text = strings.Join(strings.Fields(text), " ")
	return strings.ReplaceAll(quoteKeys(withoutSubject(text, key)), "|", `\|`)
}

// withoutSubject drops the name that a Go comment begins with: the page has it in the first column.
func withoutSubject(text, key string) string {
	rest, found := strings.CutPrefix(text, "`"+key+"` ")
	if !found {
		return text
	}
	first, after, _ := strings.Cut(rest, " ")
	switch {
	case first == "is" || first == "are":
		rest = after
	case !strings.HasSuffix(first, "s"): // "of the worker pods", "must hold": not a verb that begins a sentence
		return text
	}
	if word, _, _ := strings.Cut(rest, " "); values[strings.Trim(word, ",:")] {
		return text
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}

// values are words that a sentence cannot begin with, because a file has them in lower case.
var values = map[string]bool{"udp": true, "open": true, "raw": true}

var (
	// piece is a word with its punctuation, or code.
	piece = regexp.MustCompile("`[^`]*`|[^\\s`]+")
	// keyInText is a key of more than one word, or the path of a key.
	keyInText = regexp.MustCompile(`^(\(?)((?:[a-z]+[A-Za-z]*\.)*[a-z]+[A-Z][A-Za-z]*` +
		`|(?:worker|admission|rules|metrics)\.[a-zA-Z.]*[a-z])([.,;:)]*)$`)
)

// quoteKeys sets keys in a comment as code, but for those that are already.
func quoteKeys(text string) string {
	return piece.ReplaceAllStringFunc(text, func(word string) string {
		return keyInText.ReplaceAllString(word, "$1`$2`$3")
	})
}

// camel is a Go name of more than one word.
var camel = regexp.MustCompile(`[a-z][A-Z]|^[A-Z]{2,}[a-z]`)

var (
	// "Default 5." and "Default 0: no limit." state a value; "Default: the worker's own." and
	// "Default 1 with NOERROR, otherwise 0." describe one.
	defaultValue    = regexp.MustCompile(`Default ([^\s:]\S*?)(?:[.:;,] |\.?$)`)
	defaultSentence = regexp.MustCompile(`Default:? (.+?)(?:\. |\.?$)`)
	// "pod (default, each nameserver on its own)" too.
	defaultMention = regexp.MustCompile(`([\w./]+) \(default`)
)

// statedDefault is the default that a comment states, and whether it does so in prose; empty
// if it states none.
func statedDefault(comment string) (text string, prose bool) {
	if m := defaultValue.FindStringSubmatch(comment); m != nil {
		return m[1], false
	}
	if m := defaultSentence.FindStringSubmatch(comment); m != nil {
		return m[1], true
	}
	if m := defaultMention.FindStringSubmatch(comment); m != nil {
		return m[1], false
	}
	return "", false
}
