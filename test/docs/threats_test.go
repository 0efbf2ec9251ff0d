package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every threat of the model is accepted, or named with the tests that show what stands against it; so is every mark
// that a node may write of itself.
func TestThreatsNameTheirTests(t *testing.T) {
	tests, page := declaredTests(t), read(t, filepath.Join(root, "docs", "design", "security.md"))
	named := regexp.MustCompile("^`((?:Test|Fuzz)\\w+)`$")
	for header, size := range map[string]struct{ rows, cells int }{
		"| threat |":                       {15, 3},
		"| what a node writes of itself |": {10, 4},
	} {
		_, table, _ := strings.Cut(page, header)
		table, _, _ = strings.Cut(table, "\n\n")
		rows := strings.Split(table, "\n")[2:]
		if len(rows) < size.rows {
			t.Fatalf("%s: only %d rows", header, len(rows))
		}
		for _, row := range rows {
			cells := strings.Split(strings.Trim(row, "| "), " | ")
			if shown := cells[len(cells)-1]; len(cells) != size.cells {
				t.Errorf("%s: %d cells", cells[0], len(cells))
			} else if shown != "accepted" {
				for test := range strings.SplitSeq(shown, ", ") {
					if match := named.FindStringSubmatch(test); match == nil || !tests[match[1]] {
						t.Errorf("%s: there is no test %s", cells[0], test)
					}
				}
			}
		}
	}
}

// declaredTests are the names of all tests of the repository.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, match := range declared.FindAllSubmatch(content, -1) {
			tests[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}
