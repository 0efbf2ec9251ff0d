package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

const root = "../../.."

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func names(t *testing.T) []string {
	t.Helper()
	found, err := sources(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 3 {
		t.Fatalf("only the sources %q", found)
	}
	return found
}

func TestPicturesAreUpToDate(t *testing.T) {
	for _, name := range names(t) {
		picture := read(t, filepath.Join(folder, name+".svg"))
		if err := upToDate(root, name, []byte(picture)); err != nil {
			t.Error(err)
		}
		edited := strings.Replace(picture, "</text>", "!</text>", 1)
		if edited == picture || upToDate(root, name, []byte(edited)) == nil {
			t.Errorf("%s: an edited picture counts as drawn", name)
		}
	}
}

// A page is about 800 pixels wide; a wider picture would be shrunk, and its text with it.
func TestPicturesFitAPageInBothThemes(t *testing.T) {
	width := regexp.MustCompile(`<svg[^>]* width="(\d+)"`)
	for _, name := range names(t) {
		picture := read(t, filepath.Join(folder, name+".svg"))
		match := width.FindStringSubmatch(picture)
		if match == nil {
			t.Errorf("%s: no width", name)
			continue
		}
		if pixels, err := strconv.Atoi(match[1]); err != nil || pixels > 800 {
			t.Errorf("%s: %s pixels wide", name, match[1])
		}
		// Once in the theme, and once in the style sheet.
		if n := strings.Count(strings.ReplaceAll(picture, " ", ""), "(prefers-color-scheme:dark)"); n < 2 {
			t.Errorf("%s: %d rules for the dark theme", name, n)
		}
	}
}

// Who cannot see a picture reads its alternative text.
func TestPicturesAreShown(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := read(t, "docs/concepts.md")
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text += string(content)
	}
	for _, name := range names(t) {
		if !regexp.MustCompile(`!\[[^\]]{40,}\]\([^)]*pictures/` + name + `\.svg\)`).MatchString(text) {
			t.Errorf("no page shows %s.svg with an alternative text", name)
		}
	}
}

func TestGuardsAreThoseOfTheCode(t *testing.T) {
	want, err := guardsSource()
	if err != nil {
		t.Fatal(err)
	}
	if have := read(t, filepath.Join(folder, guards)); have != want {
		t.Errorf("%s/%s is not what internal/decide/guards.go says: make docs", folder, guards)
	}
	last := -1
	for _, g := range decide.Guards() {
		if slices.Contains(g.Needs, decide.NeedProbes) {
			continue // comes first
		}
		at := strings.Index(want[last+1:], ": "+g.Name+" {")
		if at < 0 {
			t.Fatalf("%s is missing, or not in its place", g.Name)
		}
		last += 1 + at
	}
}

// states are the states of a picture with the rest of their labels, by the first line of it.
func states(source string) map[string]string {
	found := map[string]string{}
	for _, match := range regexp.MustCompile(`(?m)^ *[a-z]+: "([^"\\]+)\\n([^"]+)"`).FindAllStringSubmatch(source, -1) {
		found[match[1]] = match[2]
	}
	return found
}

func TestStatesOfANodeAreThoseOfTheCode(t *testing.T) {
	source := read(t, filepath.Join(folder, "node.d2"))
	have := states(source)
	for _, state := range decide.States() {
		if have[string(state)] == "" {
			t.Errorf("the state %s is missing", state)
		}
	}
	words := strings.ReplaceAll(source, `\n`, "\n")
	var reasons []string
	for _, match := range regexp.MustCompile(`(?m)^\tReason\w+ += "(\w+)"`).FindAllStringSubmatch(
		read(t, "internal/marks/condition.go"), -1) {
		reasons = append(reasons, match[1])
		named := regexp.MustCompile(`\b` + match[1] + `\b`).MatchString(words)
		if other := match[1] == marks.ReasonUnsupportedOS; named == other { // it is not ours
			t.Errorf("the reason %s: named %t", match[1], named)
		}
	}
	for _, word := range regexp.MustCompile(`\b[A-Z][a-z]+[A-Z]\w+`).FindAllString(words, -1) {
		if !slices.Contains(reasons, word) {
			t.Errorf("%s is no reason of the condition", word)
		}
	}
}

// The boxes around the states are the statuses of the metrics, as on the plugin's page.
func TestBoxesOfANodeAreTheStatuses(t *testing.T) {
	source, plugin := read(t, filepath.Join(folder, "node.d2")), read(t, "docs/reference/kubectl-plugin.md")
	box := regexp.MustCompile(`(?m)^[a-z]+: "([^"]+)" \{\n  class: box\n((?:  .*\n)+)\}`)
	boxed := map[decide.State]bool{}
	var labels []string
	for _, box := range box.FindAllStringSubmatch(source, -1) {
		var statuses []string
		for _, word := range regexp.MustCompile(`[a-z]+`).FindAllString(box[1], -1) {
			if slices.Contains(decide.Statuses(), decide.Status(word)) {
				statuses = append(statuses, word)
			}
		}
		labels = append(labels, statuses...)
		for state := range states(box[2]) {
			boxed[decide.State(state)] = true
			row := regexp.MustCompile("(?m)^\\| `" + state + "` \\|.*\\|(.*)\\|$").FindStringSubmatch(plugin)
			for _, status := range statuses {
				if row == nil || !strings.Contains(row[1], "`"+status+"`") {
					t.Errorf("the state %s is in the box %q, and not on the plugin's page", state, status)
				}
			}
		}
	}
	for _, status := range decide.Statuses() {
		if !slices.Contains(labels, string(status)) {
			t.Errorf("no box is the status %s", status)
		}
	}
	for _, state := range decide.States() {
		if ours := state != decide.StateNotOurs; boxed[state] != ours {
			t.Errorf("the state %s: in a box %t", state, boxed[state])
		}
	}
}

func TestLifeOfARuleIsThatOfTheCode(t *testing.T) {
	source := read(t, filepath.Join(folder, "rule.d2"))
	have := states(source)
	for _, state := range []rule.State{rule.Held, rule.Released} {
		if have[string(state)] == "" {
			t.Errorf("the state %s is missing", state)
		}
	}
	for _, word := range []string{v1alpha1.ConditionAccepted + "=False", v1alpha1.ConditionServing + "=True"} {
		if !strings.Contains(source, word) {
			t.Errorf("%s is missing", word)
		}
	}
}

func TestWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"one two three":                        {"one two three"},
		"one two three four five six":          {"one two three", "four five six"},
		"a-word-that-is-longer-than-the-limit": {"a-word-that-is-longer-than-the-limit"},
	} {
		if got := wrap(text, 14); !slices.Equal(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
}
