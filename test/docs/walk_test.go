package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Each path of the walk through the code in docs/design/architecture.md names files that exist, numbered in their order.
// With -v it prints how many files each path has.
func TestWalk(t *testing.T) {
	page := read(t, filepath.Join(root, "docs", "design", "architecture.md"))
	_, walk, _ := strings.Cut(page, "\n## A walk through the code\n")
	walk, _, _ = strings.Cut(walk, "\n## ")
	step := regexp.MustCompile("(?m)^(\\d+)\\. (?:`([^`]+)`: )?")
	paths := strings.Split(walk, "\n### ")[1:]
	if len(paths) == 0 {
		t.Fatal("there is no walk")
	}
	for _, path := range paths {
		heading, _, _ := strings.Cut(path, "\n")
		steps := step.FindAllStringSubmatch(path, -1)
		if len(steps) == 0 {
			t.Errorf("%s: no step names a file", heading)
		}
		for i, s := range steps {
			if number, file := s[1], s[2]; number != strconv.Itoa(i+1) || file == "" {
				t.Errorf("%s: step %d is %q", heading, i+1, s[0])
			} else if info, err := os.Stat(filepath.Join(root, file)); err != nil || info.IsDir() {
				t.Errorf("%s: step %d: there is no file %s", heading, i+1, file)
			}
		}
		t.Logf("%s: %d files", heading, len(steps))
	}
}
