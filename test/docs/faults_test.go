package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each row of the table of faults in checks.md says how the fault is seen, and names tests and end-to-end cases that
// there are.
func TestFaultsNameWhatShowsThem(t *testing.T) {
	tests, cases := declaredTests(t), read(t, filepath.Join(root, "docs", "design", "e2e.md"))
	_, table, _ := strings.Cut(read(t, filepath.Join(root, "docs", "reference", "checks.md")), "| fault |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")[2:]
	if len(rows) < 30 {
		t.Errorf("only %d faults", len(rows))
	}
	seen := regexp.MustCompile(`^(detected|with option|not seen|not the node's|kept out)`)
	named := regexp.MustCompile("^(?:`((?:Test|Fuzz)\\w+)(?:/[^`]+)?`|\\*([^*]+)\\*)$")
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if len(cells) != 4 || !seen.MatchString(cells[1]) {
			t.Errorf("%s: %q", cells[0], cells)
			continue
		}
		if cells[3] == "not tried" {
			continue
		}
		for shown := range strings.SplitSeq(cells[3], ", ") {
			match := named.FindStringSubmatch(shown)
			if match == nil || match[1] != "" && !tests[match[1]] || match[2] != "" && !strings.Contains(cases, "| "+match[2]+" |") {
				t.Errorf("%s: there is no %s", cells[0], shown)
			}
		}
	}
}
