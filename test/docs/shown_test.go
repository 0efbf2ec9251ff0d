package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every threat of the model is accepted, or names the packages whose tests show what stands against it; so does every
// mark that a node may write of itself.
func TestThreatsNameWhatShowsThem(t *testing.T) {
	for _, header := range []string{"threat", "what a node writes of itself"} {
		for _, row := range rowsOf(t, "docs/design/security.md", header) {
			shownBy(t, row, "accepted")
		}
	}
}

// Every fault of the list in checks.md says how it is seen, and names the packages whose tests show that.
func TestFaultsNameWhatShowsThem(t *testing.T) {
	seen := regexp.MustCompile(`^(detected|with option|not seen|not the node's|kept out)`)
	for _, row := range rowsOf(t, "docs/reference/checks.md", "fault") {
		if !seen.MatchString(row[1]) {
			t.Errorf("%s: %q does not say whether it is seen", row[0], row[1])
		}
		shownBy(t, row, "not tried")
	}
}

// rowsOf are the rows of a page's table, by cells. header is the table's first cell; each row has as many cells.
func rowsOf(t *testing.T, page, header string) (rows [][]string) {
	t.Helper()
	cells := func(line string) []string { return strings.Split(strings.Trim(line, "| "), " | ") }
	_, table, _ := strings.Cut(read(t, filepath.Join(root, page)), "\n| "+header+" |")
	table, _, _ = strings.Cut(table, "\n\n")
	lines := strings.Split(table, "\n")
	if len(lines) < 3 {
		t.Fatalf("%s has no table of %q", page, header)
	}
	for _, line := range lines[2:] {
		row := cells(line)
		if want := 1 + len(cells(lines[0])); len(row) != want {
			t.Errorf("%s: %d cells, want %d", row[0], len(row), want)
			continue
		}
		rows = append(rows, row)
	}
	return rows
}

// shownBy checks that the last cell of a row names packages that have tests, or is the word for none.
func shownBy(t *testing.T, row []string, none string) {
	t.Helper()
	last := row[len(row)-1]
	if last == none {
		return
	}
	var named []string
	for cell := range strings.SplitSeq(last, ", ") {
		folder := strings.Trim(cell, "`")
		tests, _ := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
		if cell != "`"+folder+"`" || len(tests) == 0 || slices.Contains(named, folder) {
			t.Errorf("%s: %s is no package that has tests, or named twice; write %q if there is none", row[0], cell, none)
		}
		named = append(named, folder)
	}
}
