package tools

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

// A tag of somebody else's repository can be moved: what runs with our credentials is pinned by its commit.
func TestActionsArePinnedByCommit(t *testing.T) {
	const folder = "../../.github/workflows"
	inputs.Track(t, folder)
	pinned := regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	workflows, _ := filepath.Glob(filepath.Join(folder, "*.yaml"))
	found := 0
	for _, workflow := range workflows {
		data, err := os.ReadFile(workflow)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			_, action, ok := strings.Cut(line, "uses: ")
			if action = strings.TrimSpace(action); !ok || strings.HasPrefix(action, "./") {
				continue
			}
			found++
			if !pinned.MatchString(action) {
				t.Errorf("%s: %s is not pinned as owner/name@<commit> # vX.Y.Z", workflow, action)
			}
		}
	}
	if found == 0 {
		t.Error("no action was found")
	}
}
