package prose

import (
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

// instead is what to write for words that the field does not use, or that are idioms.
var instead = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?i)\b(mend|heal)(s|ed|ing)?\b`):       "fix, recover",
	regexp.MustCompile(`(?i)\bjudg(e|es|ed|ing)\b`):            "evaluate",
	regexp.MustCompile(`(?i)\bheld against\b`):                 "counted as a failure of",
	regexp.MustCompile(`(?i)\boverdue\b`):                      "past its deadline",
	regexp.MustCompile(`(?i)\blets? go\b`):                     "release",
	regexp.MustCompile(`(?i)\bwakes?\b`):                       "enqueue",
	regexp.MustCompile(`(?i)\b(as ever|whatever else)\b`):      "nothing, or what it is",
	regexp.MustCompile(`(?i)\ball the same\b`):                 "still",
	regexp.MustCompile(`(?i)\b(in the way of|give it back)\b`): "block, release",
}

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

// The pages use the words of the field.
func TestWords(t *testing.T) {
	for name, page := range pages(t) {
		for _, s := range append(Sentences(page), cells(name, page)...) {
			for pattern, better := range instead {
				if found := pattern.FindString(s.Text); found != "" {
					t.Errorf("%s:%d: instead of %q write: %s", name, s.Line, found, better)
				}
			}
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

// The file longsentences holds how many sentences have more than 30 words. It only falls: who shortens one lowers it.
func TestLongSentences(t *testing.T) {
	content, err := os.ReadFile("longsentences")
	if err != nil {
		t.Fatal(err)
	}
	budget, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		t.Fatal(err)
	}
	var long []string
	for name, page := range pages(t) {
		for _, s := range append(Sentences(page), cells(name, page)...) {
			if n := s.Words(); n > sentenceLimit {
				long = append(long, name+":"+strconv.Itoa(s.Line)+": "+strconv.Itoa(n)+" words: "+s.Text)
			}
		}
	}
	slices.Sort(long)
	switch {
	case len(long) > budget:
		t.Errorf("%d sentences have more than %d words, the budget is %d: shorten one\n%s", len(long), sentenceLimit, budget, strings.Join(long, "\n"))
	case len(long) < budget:
		t.Errorf("%d sentences have more than %d words: write %d into test/docs/prose/longsentences", len(long), sentenceLimit, len(long))
	}
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

func TestLongLines(t *testing.T) {
	page := "short\n| " + strings.Repeat("cell ", 9) + "|\n" + strings.Repeat("x", 40) + "\n- " + strings.Repeat("x", 40) + "\n" +
		strings.Repeat("word ", 9) + "\n```\n" + strings.Repeat("code ", 9) + "\n```\n"
	if got := LongLines(page, 30); !slices.Equal(got, []int{5}) {
		t.Errorf("got %v", got)
	}
}
