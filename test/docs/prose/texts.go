package prose

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Text is a text outside of the pages that somebody reads: a message, a help text, a comment, an alert.
type Text struct {
	// File and Line are where it begins. Line is 0 where a file has no lines to count, such as JSON.
	File string
	Line int
	// Text is the text. A line that begins with a space stands for itself, as in a list of flags.
	Text string
}

// Sentences are the sentences of the text.
func (t Text) Sentences() []Sentence {
	var page []string
	for line := range strings.SplitSeq(t.Text, "\n") {
		alone := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		if alone {
			page = append(page, "", strings.TrimSpace(line), "")
		} else {
			page = append(page, line)
		}
	}
	found := Sentences(strings.Join(page, "\n"))
	for i := range found {
		found[i].Line = t.Line
	}
	return found
}

// verb is a verb of package fmt, which stands for a word.
var verb = regexp.MustCompile(`%[-+#0-9.*]*[a-zA-Z]`)

// GoTexts are texts for people in Go sources below the folder. These are the doc comments of exported names, and the
// string literals of three words or more (errors, events, conditions, logs, help texts, metrics' help). Tests and
// generated files have none.
func GoTexts(folder string) ([]Text, error) {
	var found []Text
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := d.Name(); {
		case d.IsDir() && name == "testdata":
			return filepath.SkipDir
		case d.IsDir(), !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"),
			strings.HasPrefix(name, "zz_generated"):
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		add := func(at token.Pos, text string) {
			found = append(found, Text{File: path, Line: set.Position(at).Line, Text: text})
		}
		ast.Inspect(file, func(n ast.Node) bool { return literals(n, add) })
		comments(file, add)
		return nil
	})
	return found, err
}

// literals adds the literal that a node is, and reports whether to look into the node.
func literals(n ast.Node, add func(token.Pos, string)) bool {
	switch n := n.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.Field: // whose tag is none
		ast.Inspect(n.Type, func(n ast.Node) bool { return literals(n, add) })
		return false
	case ast.Expr:
		text, is := literal(n)
		if is && len(strings.Fields(text)) > 2 {
			add(n.Pos(), verb.ReplaceAllString(text, "Code"))
		}
		return !is
	}
	return true
}

// literal is a string literal, or a sum in which there is one: what else is in it stands for a word.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.ParenExpr:
		return literal(e.X)
	case *ast.BinaryExpr:
		left, isLeft := literal(e.X)
		right, isRight := literal(e.Y)
		if e.Op != token.ADD || !isLeft && !isRight {
			return "", false
		}
		if !isLeft {
			left = "Code"
		}
		if !isRight {
			right = "Code"
		}
		return left + right, true
	}
	return "", false
}

// comments adds the doc comments of the package and of exported names.
func comments(file *ast.File, add func(token.Pos, string)) {
	doc := func(exported bool, groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if g == nil || !exported {
				continue
			}
			var lines []string
			for line := range strings.SplitSeq(g.Text(), "\n") {
				if strings.HasPrefix(line, "+") { // a marker of kubebuilder
					line = ""
				}
				lines = append(lines, line)
			}
			add(g.Pos(), strings.Join(lines, "\n"))
		}
	}
	fields := func(list *ast.FieldList) {
		for _, f := range list.List {
			for _, name := range f.Names {
				doc(name.IsExported(), f.Doc, f.Comment)
			}
		}
	}
	doc(true, file.Doc)
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			doc(d.Name.IsExported(), d.Doc)
		case *ast.GenDecl:
			doc(true, d.Doc)
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					doc(spec.Name.IsExported(), spec.Doc)
					switch of := spec.Type.(type) {
					case *ast.StructType:
						fields(of.Fields)
					case *ast.InterfaceType:
						fields(of.Methods)
					}
				case *ast.ValueSpec:
					doc(spec.Names[0].IsExported(), spec.Doc, spec.Comment)
				}
			}
		}
	}
}

var (
	comment = regexp.MustCompile(`^\s*#( ?)(-- )?(.*)$`)
	// setting is a line that is commented out.
	setting = regexp.MustCompile(`^(- |[\w./-]+:( |$)|  )`)
	action  = regexp.MustCompile(`\{\{[^}]*\}\}`)
)

// YAMLComments are the blocks of comments of a YAML file or a shell script.
func YAMLComments(file, content string) []Text {
	var found []Text
	var block []string
	begin := 0
	end := func() {
		if len(block) > 0 {
			found = append(found, Text{File: file, Line: begin, Text: strings.Join(block, "\n")})
		}
		block = nil
	}
	for i, line := range strings.Split(content, "\n") {
		parts := comment.FindStringSubmatch(line)
		if parts == nil {
			end()
			continue
		}
		if block == nil {
			begin = i + 1
		}
		text := parts[3]
		if parts[1] == "" || setting.MatchString(text) {
			text = " " + text
		}
		block = append(block, text)
	}
	end()
	return found
}

// Alerts are the annotations of the alerts in a file of rules.
func Alerts(file string) ([]Text, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var rules struct {
		Rules []struct {
			Alert       string
			Annotations map[string]string
		}
	}
	if err := yaml.Unmarshal(content, &rules); err != nil {
		return nil, err
	}
	var found []Text
	for _, r := range rules.Rules {
		for _, text := range r.Annotations {
			found = append(found, Text{File: file + " " + r.Alert, Text: action.ReplaceAllString(text, "Code")})
		}
	}
	return found, nil
}

// Panels are the titles and descriptions of a dashboard.
func Panels(file string) ([]Text, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var dashboard any
	if err := json.Unmarshal(content, &dashboard); err != nil {
		return nil, err
	}
	var found []Text
	var walk func(any)
	walk = func(value any) {
		switch value := value.(type) {
		case []any:
			for _, v := range value {
				walk(v)
			}
		case map[string]any:
			for key, v := range value {
				if text, is := v.(string); is && (key == "description" || key == "title") {
					found = append(found, Text{File: file, Text: text})
				}
				walk(v)
			}
		}
	}
	walk(dashboard)
	return found, nil
}

// Notes is the text of a chart's NOTES.txt, without its actions.
func Notes(file string) ([]Text, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return []Text{{File: file, Line: 1, Text: action.ReplaceAllString(string(content), "Code")}}, nil
}
