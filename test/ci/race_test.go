// Package ci tests that continuous integration leaves out nothing by a list that is out of date.
package ci

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// list is the value of a variable in the Makefile, by words.
func list(t *testing.T, variable string) []string {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + variable + ` := ((?:.*\\\n)*.*)$`).FindSubmatch(makefile)
	if m == nil {
		t.Fatalf("the Makefile has no %s", variable)
	}
	return strings.Fields(strings.ReplaceAll(string(m[1]), "\\\n", " "))
}

// concurrent reports whether a file has what a race needs: a go statement, a channel, or something of package sync.
func concurrent(file *ast.File) bool {
	for _, i := range file.Imports {
		if path, _ := strconv.Unquote(i.Path.Value); slices.Contains([]string{"sync", "sync/atomic", "golang.org/x/sync/errgroup"}, path) {
			return true
		}
	}
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.GoStmt, *ast.ChanType:
			found = true
		}
		return !found
	})
	return found
}

// make race runs the packages that do something at once, and no others.
func TestRacePackages(t *testing.T) {
	var want []string
	for _, folder := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, filepath.Dir(path))
			if concurrent(file) && !slices.Contains(want, "./"+name) {
				want = append(want, "./"+name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(want)
	if have := list(t, "RACE_PACKAGES"); !slices.Equal(have, want) {
		t.Errorf("RACE_PACKAGES of the Makefile is\n%s\nand these do something at once:\n%s", strings.Join(have, " "), strings.Join(want, " "))
	}
}

// A test that has another name by now would be left out without a word.
func TestRaceTestsAreThere(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "test", "integration", "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	var sources strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(content)
	}
	tests := list(t, "RACE_TESTS")
	if len(tests) == 0 {
		t.Error("none is run with programs that have the race detector")
	}
	for _, name := range tests {
		if !strings.Contains(sources.String(), "\nfunc "+name+"(t *testing.T)") {
			t.Errorf("test/integration has no %s", name)
		}
	}
}
