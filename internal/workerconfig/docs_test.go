package workerconfig_test

import (
	"os"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// The configurations in docs/checks.md can be used as they are.
func TestRecipes(t *testing.T) {
	page, err := os.ReadFile("../../docs/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i, block := range strings.Split(string(page), "```") {
		recipe, isYAML := strings.CutPrefix(block, "yaml\n")
		if i%2 == 0 || !isYAML || !strings.HasPrefix(recipe, "worker:") {
			continue
		}
		found++
		if _, err := config.Parse([]byte(recipe), "recipe"); err != nil {
			t.Errorf("%v in\n%s", err, recipe)
		}
	}
	if found < 2 {
		t.Errorf("%d recipes were found", found)
	}
}
