package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

// The walk through the code in docs/design/architecture.md names files and functions that exist, and counts the files.
func TestWalk(t *testing.T) {
	page := read(t, filepath.Join(root, "docs", "design", "architecture.md"))
	_, walk, found := strings.Cut(page, "\n## A walk through the code\n")
	if !found {
		t.Fatal("there is no walk")
	}
	walk, _, _ = strings.Cut(walk, "\n## ")
	step := regexp.MustCompile("(?m)^(\\d+)\\. `([^`]+)` \\(([^)]+)\\): ")
	name := regexp.MustCompile("`(\\w+)`")
	paths := strings.Split(walk, "\n### ")[1:]
	if len(paths) != 4 {
		t.Errorf("%d paths", len(paths))
	}
	for _, path := range paths {
		heading, _, _ := strings.Cut(path, "\n")
		steps := step.FindAllStringSubmatch(path, -1)
		if !strings.HasSuffix(heading, "("+strconv.Itoa(len(steps))+" files)") {
			t.Errorf("%s: %d steps", heading, len(steps))
		}
		seen := map[string]bool{}
		for i, s := range steps {
			number, file := s[1], s[2]
			if number != strconv.Itoa(i+1) || seen[file] {
				t.Errorf("%s: step %s, %s, has another number or is there twice", heading, number, file)
			}
			seen[file] = true
			inputs.Track(t, filepath.Join(root, file))
			source, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				t.Error(err)
				continue
			}
			for _, function := range name.FindAllStringSubmatch(s[3], -1) {
				if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + function[1] + `[(\[]`).Match(source) {
					t.Errorf("%s has no function %s", file, function[1])
				}
			}
		}
	}
}
