package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

// ownWords are words of ours for what the field has words for. The right side is what to write.
var ownWords = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?i)rehears`):                                                  "dry run",
	regexp.MustCompile(`(?i)\bsights?\b|[a-z]Sight|Sights`):                            "observation, tracker",
	regexp.MustCompile(`(?i)\b(node|deletion|rule|rules|backfill|own|the) rooms?\b`):   "controller, reconciler",
	regexp.MustCompile(`(?i)\boutlook\b`):                                              "next condition",
	regexp.MustCompile(`(?i)\bfarewell\b`):                                             "shutdown grace",
	regexp.MustCompile(`(?i)\benact(s|ed)?\b`):                                         "apply",
	regexp.MustCompile(`(?i)\bstand-in\b`):                                             "fallback",
	regexp.MustCompile(`(?i)\bslipped past\b`):                                         "missed",
	regexp.MustCompile(`(?i)\bat (its )?birth\b|\bbirth(Taints|s of)\b`):               "on creation",
	regexp.MustCompile(`internal/worker/(around|guard)\b|internal/worker/net/cause\b`): "environment, recovery, neterror",
}

// The code and the pages use the words that an engineer who knows Kubernetes reads elsewhere.
func TestOwnWords(t *testing.T) {
	files := pages(t)
	for _, folder := range []string{"cmd", "internal", "deploy"} {
		inputs.Track(t, filepath.Join(root, folder))
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if name := d.Name(); !d.IsDir() && !strings.HasPrefix(name, "zz_generated") &&
				(strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".tpl")) {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files {
		for number, line := range strings.Split(read(t, file), "\n") {
			for word, instead := range ownWords {
				if found := word.FindString(line); found != "" {
					t.Errorf("%s:%d: %q, write: %s", file, number+1, found, instead)
				}
			}
		}
	}
}
