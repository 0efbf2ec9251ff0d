package owner

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNoKindIsNamedBesideTheSeam reads what decides, counts and shows remediations. It must work with every kind of owner, so it
// names none but Node.
func TestNoKindIsNamedBesideTheSeam(t *testing.T) {
	var names []string
	for _, k := range Kinds() {
		if k.Name != Node {
			names = append(names, k.Name, strings.ToLower(k.Name[:1])+k.Name[1:], k.Resource.Resource)
		}
	}
	named := regexp.MustCompile(strings.Join(names, "|"))
	read := 0
	for _, folder := range []string{"decide", "ledger", "metrics", "kubectlplugin", "controller", "manager", "rights"} {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			read++
			for i, line := range strings.Split(string(content), "\n") {
				if named.MatchString(line) {
					t.Errorf("%s:%d names a kind of owner: %s", path, i+1, strings.TrimSpace(line))
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if read < 60 {
		t.Errorf("read %d files, which are too few to be the product", read)
	}
}
