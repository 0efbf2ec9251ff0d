package prose

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../../.."

// Bounds of the style.
const (
	lineLimit     = 120 // characters
	sentenceLimit = 30  // words
)

func pages(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-co", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if content, err := os.ReadFile(filepath.Join(root, name)); err == nil { // else removed in the working tree
			found[name] = string(content)
		}
	}
	if len(found) < 60 {
		t.Fatalf("only %d pages", len(found))
	}
	return found
}

// cells are the sentences in the tables of a page, unless the sources have them.
func cells(name, page string) []Sentence {
	if strings.HasPrefix(page, "<!-- Written by") || name == "deploy/helm/kube-node-ready/README.md" {
		return nil
	}
	return Cells(page)
}

// texts are what people read outside of the pages, by what it is.
func texts(t *testing.T) map[string][]Text {
	t.Helper()
	found := map[string][]Text{}
	add := func(kind string, texts []Text, err error) {
		if err != nil {
			t.Fatal(err)
		}
		found[kind] = append(found[kind], texts...)
	}
	for _, folder := range []string{"cmd", "internal"} {
		all, err := GoTexts(filepath.Join(root, folder))
		add("Go", all, err)
	}
	chart := filepath.Join(root, "deploy/helm/kube-node-ready")
	comments := []string{filepath.Join(chart, "values.yaml"), filepath.Join(chart, "files/alerts.yaml")}
	err := filepath.WalkDir(filepath.Join(root, "examples"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".yaml") || strings.HasSuffix(path, ".sh") {
			comments = append(comments, path)
		}
		return err
	})
	add("comments", nil, err)
	for _, file := range comments {
		content, err := os.ReadFile(file)
		add("comments", YAMLComments(file, string(content)), err)
	}
	alerts, err := Alerts(filepath.Join(chart, "files/alerts.yaml"))
	add("alerts", alerts, err)
	panels, err := Panels(filepath.Join(chart, "files/dashboard.json"))
	add("dashboard", panels, err)
	notes, err := Notes(filepath.Join(chart, "templates/NOTES.txt"))
	add("notes", notes, err)
	for kind, least := range map[string]int{"Go": 3000, "comments": 200, "alerts": 30, "dashboard": 40, "notes": 1} {
		if n := len(found[kind]); n < least {
			t.Fatalf("only %d texts of kind %s", n, kind)
		}
	}
	return found
}

// The pages, and what people read outside of them, use the words of the field.
func TestWords(t *testing.T) {
	check := func(file string, sentences []Sentence) {
		for _, s := range sentences {
			for _, word := range slices.Concat(Everywhere, InSentences) {
				if found := word.Pattern.FindString(s.Text); found != "" {
					t.Errorf("%s:%d: instead of %q write: %s", file, s.Line, found, word.Instead)
				}
			}
		}
	}
	for name, page := range pages(t) {
		check(name, append(Sentences(page), cells(name, page)...))
	}
	for _, all := range texts(t) {
		for _, text := range all {
			check(text.File, text.Sentences())
		}
	}
}

func TestLineLength(t *testing.T) {
	for name, page := range pages(t) {
		for _, line := range LongLines(page, lineLimit) {
			t.Errorf("%s:%d has more than %d characters", name, line, lineLimit)
		}
	}
}

// The file longsentences holds how many sentences of the pages have more than 30 words, the file longtexts how many of
// what people read outside of them. Both only fall: who shortens one lowers it.
func TestLongSentences(t *testing.T) {
	within := func(file string, long []string) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		budget, err := strconv.Atoi(strings.TrimSpace(string(content)))
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(long)
		switch {
		case len(long) > budget:
			t.Errorf("%d sentences have more than %d words, the budget in %s is %d: shorten one\n%s",
				len(long), sentenceLimit, file, budget, strings.Join(long, "\n"))
		case len(long) < budget:
			t.Errorf("%d sentences have more than %d words: write %d into test/docs/prose/%s", len(long), sentenceLimit, len(long), file)
		}
	}
	long := func(file string, sentences []Sentence) (found []string) {
		for _, s := range sentences {
			if n := s.Words(); n > sentenceLimit {
				found = append(found, file+":"+strconv.Itoa(s.Line)+": "+strconv.Itoa(n)+" words: "+s.Text)
			}
		}
		return found
	}
	var inPages, inTexts []string
	for name, page := range pages(t) {
		inPages = append(inPages, long(name, append(Sentences(page), cells(name, page)...))...)
	}
	for _, all := range texts(t) {
		for _, text := range all {
			inTexts = append(inTexts, long(text.File, text.Sentences())...)
		}
	}
	within("longsentences", inPages)
	within("longtexts", inTexts)
}

func TestSentences(t *testing.T) {
	page := "# A heading\n\nOne sentence. Another, with `code. Here` and\n[a link](x.md). (A third.)\n\n- an item\n- e.g. two\n\n" +
		"| a | table |\n\n```sh\nCode. Here.\n```\n<!-- a comment -->\nThe end.\n"
	var got []string
	for _, s := range Sentences(page) {
		got = append(got, strconv.Itoa(s.Line)+" "+s.Text)
	}
	want := []string{"3 One sentence.", "3 Another, with Code and a link.", "3 (A third.)", "6 an item", "7 e.g. two", "15 The end."}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if n := (Sentence{Text: "It's node-ready/verified, of 3 words: no, 7."}).Words(); n != 7 {
		t.Errorf("%d words", n)
	}
}

func TestLongLines(t *testing.T) {
	page := "short\n| " + strings.Repeat("cell ", 9) + "|\n" + strings.Repeat("x", 40) + "\n- " + strings.Repeat("x", 40) + "\n" +
		strings.Repeat("word ", 9) + "\n```\n" + strings.Repeat("code ", 9) + "\n```\n"
	if got := LongLines(page, 30); !slices.Equal(got, []int{5}) {
		t.Errorf("got %v", got)
	}
}

func TestGoTexts(t *testing.T) {
	const source = `// Package p is documented.
package p

import "a package of others"

// T is exported.
//
//	Its code is none of the sentence.
type T struct {
	// F has a comment.
	F string ` + "`json:\"a tag with words\"`" + ` // and another one
}

// hidden is not.
func hidden(n int) { report("one and "+
	"the same", "two words", "with "+name+" in the middle", "%d of %s are left") }
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	add := func(_ token.Pos, text string) {
		for _, s := range (Text{Text: text}).Sentences() {
			got = append(got, s.Text)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool { return literals(n, add) })
	comments(file, add)
	want := []string{"one and the same", "with Code in the middle", "Code of Code are left",
		"Package p is documented.", "T is exported.", "Its code is none of the sentence.", "F has a comment.", "and another one"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestYAMLComments(t *testing.T) {
	const file = "# -- One value.\n# Its second\n# sentence.\na: b\n# An example:\n# - name: c\n#   d: e\nf: g # none\n"
	var got []string
	for _, text := range YAMLComments("f", file) {
		for _, s := range text.Sentences() {
			got = append(got, strconv.Itoa(s.Line)+" "+s.Text)
		}
	}
	want := []string{"1 One value.", "1 Its second sentence.", "5 An example:", "5 name: c", "5 d: e"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// golang is Go that got into a page which is made from its sources.
var golang = regexp.MustCompile(`\b(metav1|corev1|intstr)\.|\[\][a-z]|\bmap\[|\b(struct|nil|func)\b|\*(bool|int|int32|string)(\W?$|[^*\w])`)

func TestGeneratedPagesHaveNoGo(t *testing.T) {
	found := 0
	for name, page := range pages(t) {
		if !strings.HasPrefix(page, "<!-- Written by") {
			continue
		}
		found++
		for i, line := range strings.Split(page, "\n") {
			if match := golang.FindString(line); match != "" {
				t.Errorf("%s:%d has %q of Go", name, i+1, match)
			}
		}
	}
	if found < 3 {
		t.Errorf("only %d pages are generated", found)
	}
}

func TestCells(t *testing.T) {
	page := "One. Two.\n\n| a | b |\n|---|---|\n| one thing; another | `x | y` is code. The [link](x.md) |\n\n```text\n| code |\n```\n"
	var got []string
	for _, s := range Cells(page) {
		got = append(got, strconv.Itoa(s.Line)+" "+s.Text)
	}
	want := []string{"3 a", "3 b", "5 one thing", "5 another", "5 Code is code.", "5 The link"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
