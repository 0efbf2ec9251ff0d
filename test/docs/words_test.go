package docs

import (
	"io/fs"
	"maps"
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

// ownWordsInGo are such words that have another meaning on a page or in an alert.
var ownWordsInGo = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?i)\bslipped\b`):  "missed",
	regexp.MustCompile(`(?i)\blets? go\b`): "release",
	regexp.MustCompile(`\bwakes\b`):        "enqueue",
}

// The code and the pages use the words that an engineer who knows Kubernetes reads elsewhere.
func TestOwnWords(t *testing.T) {
	files := pages(t)
	for _, folder := range []string{"cmd", "internal", "deploy", "examples", "test"} {
		inputs.Track(t, filepath.Join(root, folder))
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if name := d.Name(); !d.IsDir() && name != "words_test.go" && !strings.HasPrefix(name, "zz_generated") &&
				(strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".tpl")) {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	everywhere, inGo := anyOf(ownWords), anyOf(ownWordsInGo)
	for _, file := range files {
		content, isGo := read(t, file), strings.HasSuffix(file, ".go")
		if !everywhere.MatchString(content) && (!isGo || !inGo.MatchString(content)) {
			continue // one pass over the file; what follows takes one for each word
		}
		words := maps.Clone(ownWords)
		if isGo {
			maps.Copy(words, ownWordsInGo)
		}
		for number, line := range strings.Split(content, "\n") {
			for word, instead := range words {
				if found := word.FindString(line); found != "" {
					t.Errorf("%s:%d: %q, write: %s", file, number+1, found, instead)
				}
			}
		}
	}
}

// anyOf matches what any of the words matches.
func anyOf(words map[*regexp.Regexp]string) *regexp.Regexp {
	var all []string
	for word := range words {
		all = append(all, "(?:"+word.String()+")")
	}
	return regexp.MustCompile(strings.Join(all, "|"))
}
