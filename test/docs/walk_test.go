package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// walks are the sections of pages in docs/design that walk through the code. Each has one path, or one below each of
// its headings.
var walks = map[string]string{
	"architecture.md": "A walk through one failing node",
	"code.md":         "Walks through the code",
}

func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, found, ok := strings.Cut(read(t, filepath.Join(root, "docs", "design", page)), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", page, heading)
	}
	found, _, _ = strings.Cut(found, "\n## ")
	return found
}

func isFile(elements ...string) bool {
	info, err := os.Stat(filepath.Join(append([]string{root}, elements...)...))
	return err == nil && !info.IsDir()
}

// Each path of the walks through the code names files that exist, numbered in their order. With -v it prints how many
// files each path has.
func TestWalk(t *testing.T) {
	step := regexp.MustCompile("(?m)^(\\d+)\\. (?:`([^`]+)`: )?")
	for page, heading := range walks {
		paths := strings.Split(section(t, page, heading), "\n### ")
		if len(paths) > 1 {
			paths = paths[1:]
		} else {
			paths[0] = heading + "\n" + paths[0]
		}
		for _, path := range paths {
			heading, _, _ := strings.Cut(path, "\n")
			steps := step.FindAllStringSubmatch(path, -1)
			if len(steps) == 0 {
				t.Errorf("%s: %s: no step names a file", page, heading)
			}
			for i, s := range steps {
				if number, file := s[1], s[2]; number != strconv.Itoa(i+1) || file == "" {
					t.Errorf("%s: %s: step %d is %q", page, heading, i+1, s[0])
				} else if !isFile(file) {
					t.Errorf("%s: %s: step %d: there is no file %s", page, heading, i+1, file)
				}
			}
			t.Logf("%s: %s: %d files", page, heading, len(steps))
		}
	}
}

// The words of the states are those of the code: in the table, which has them in the order of StateOf with their files,
// in the walk, which comes to each of them, and on the plugin's page.
func TestStatesOfTheArchitecture(t *testing.T) {
	var rows []decide.State
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)`, `([a-z_]+\\.go)` \\|").FindAllStringSubmatch(
		section(t, "architecture.md", "The states of a node"), -1) {
		rows = append(rows, decide.State(row[1]))
		if !isFile("internal", "decide", row[2]) {
			t.Errorf("state %s: there is no file internal/decide/%s", row[1], row[2])
		}
	}
	if !slices.Equal(rows, decide.States()) {
		t.Errorf("the table has the states %q\nthe code has %q", rows, decide.States())
	}
	var walked []decide.State
	for _, word := range regexp.MustCompile(`\*\*([a-z-]+)\*\*`).FindAllStringSubmatch(
		section(t, "architecture.md", walks["architecture.md"]), -1) {
		walked = append(walked, decide.State(word[1]))
		if !slices.Contains(decide.States(), decide.State(word[1])) {
			t.Errorf("the walk has the state %q, which is none", word[1])
		}
	}
	plugin := read(t, filepath.Join(root, "docs", "reference", "kubectl-plugin.md"))
	for _, state := range decide.States() {
		if !slices.Contains(walked, state) {
			t.Errorf("the walk does not come to the state %s", state)
		}
		if state != decide.StateNotOurs && !strings.Contains(plugin, "\n| `"+string(state)+"` |") { // it has words for that
			t.Errorf("the plugin's page has no row for the state %s", state)
		}
	}
}

// The files that the pages of the design name exist. A name without a folder is one in internal/decide.
func TestFilesOfTheDesign(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "design", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	name, found := regexp.MustCompile("`((?:[a-z0-9_]+/)*)([a-z0-9_]+\\.go)`"), 0
	for _, page := range pages {
		for _, match := range name.FindAllStringSubmatch(read(t, page), -1) {
			found++
			folder := match[1]
			if folder == "" {
				folder = "internal/decide"
			}
			if !isFile(folder, match[2]) {
				t.Errorf("%s: there is no file %s in %s", page, match[2], folder)
			}
		}
	}
	if found < 60 {
		t.Errorf("only %d files", found)
	}
}
