package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/docs/prose"
	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

// The code and the pages use the words that an engineer who knows Kubernetes reads elsewhere.
func TestOwnWords(t *testing.T) {
	files := pages(t)
	for _, folder := range []string{"cmd", "internal", "deploy", "examples", "test"} {
		inputs.Track(t, filepath.Join(root, folder))
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if name := d.Name(); !d.IsDir() && name != "words.go" && !strings.HasPrefix(name, "zz_generated") &&
				(strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".tpl")) {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	everywhere, inGo := anyOf(prose.Everywhere), anyOf(prose.InGo)
	for _, file := range files {
		content, isGo := read(t, file), strings.HasSuffix(file, ".go")
		if !everywhere.MatchString(content) && (!isGo || !inGo.MatchString(content)) {
			continue // one pass over the file; what follows takes one for each word
		}
		words := prose.Everywhere
		if isGo {
			words = slices.Concat(words, prose.InGo)
		}
		for number, line := range strings.Split(content, "\n") {
			for _, word := range words {
				if found := word.Pattern.FindString(line); found != "" {
					t.Errorf("%s:%d: %q, write: %s", file, number+1, found, word.Instead)
				}
			}
		}
	}
}

// anyOf matches what any of the words matches.
func anyOf(words []prose.Word) *regexp.Regexp {
	var all []string
	for _, word := range words {
		all = append(all, "(?:"+word.Pattern.String()+")")
	}
	return regexp.MustCompile(strings.Join(all, "|"))
}
