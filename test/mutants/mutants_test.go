// Package mutants shows that the tests beside the code find bugs: planted ones, and a list of small changes to what decides and acts.
// What is not found is a hole in the tests. It takes long: make mutants runs it, and make test does not.
package mutants

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
	"github.com/kube-node-ready/kube-node-ready/test/mutants/patch"
)

// mutant is a change of one place.
type mutant struct {
	name string
	// file is changed in the one place where it has old.
	file, old, new string
	// tests are those of its package that find it, as go test -run has them.
	tests string
}

// overlay puts the mutant in the place of the sources.
func (m mutant) overlay(folder string) (string, error) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if count := strings.Count(string(content), m.old); count != 1 {
		return "", fmt.Errorf("%s has %q %d times", m.file, m.old, count)
	}
	changed := strings.Replace(string(content), m.old, m.new, 1)
	return patch.Overlay(map[string][]byte{m.file: []byte(changed)}, folder)
}

// tried are the patches and mutants to try: those that have MUTANTS in their names. The test is skipped if that is not set.
func tried(t *testing.T) (patches []string, changes []mutant) {
	t.Helper()
	which := missing.Request(t, "MUTANTS", "make mutants")
	patches, err := filepath.Glob("planted/*.patch")
	if err != nil || len(patches) == 0 {
		t.Fatalf("%d patches, %v", len(patches), err)
	}
	patches = slices.DeleteFunc(patches, func(file string) bool { return !strings.Contains(nameOf(file), which) })
	changes = slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return !strings.Contains(m.name, which) })
	if len(patches)+len(changes) == 0 {
		t.Fatalf("no mutant has %q in its name", which)
	}
	return patches, changes
}

func nameOf(file string) string { return strings.TrimSuffix(filepath.ToSlash(file), ".patch") }

// Every mutant applies to the sources: one that does not proves nothing. This comes first and takes a second, so that a
// run of an hour begins with the list of those that have to be made anew.
func TestMutantsApply(t *testing.T) {
	patches, changes := tried(t)
	for _, file := range patches {
		if _, err := patch.Apply(t.Context(), file, t.TempDir()); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, m := range changes {
		if _, err := m.overlay(t.TempDir()); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// where is the line of a patch that names the tests which find it.
var where = regexp.MustCompile(`(?m)^go test (\S+) -run (\S+)$`)

// Every mutant is found by the tests of its package.
func TestMutants(t *testing.T) {
	patches, changes := tried(t)
	for _, file := range patches {
		t.Run(nameOf(file), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tests := where.FindSubmatch(content)
			if tests == nil {
				t.Fatal("the patch does not say which tests find it")
			}
			overlay, err := patch.Apply(t.Context(), file, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			wantsRed(t, overlay, string(tests[1]), string(tests[2]))
		})
	}
	for _, m := range changes {
		t.Run(m.name, func(t *testing.T) {
			overlay, err := m.overlay(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			wantsRed(t, overlay, "./"+filepath.Dir(m.file), m.tests)
		})
	}
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// wantsRed runs the tests of a package with the overlay, and fails unless one of them fails.
func wantsRed(t *testing.T, overlay, pkg, tests string) {
	t.Helper()
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-run", tests, "-count=1", "-failfast", "-timeout", "10m", pkg)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	red := failed.FindSubmatch(out)
	switch {
	case err == nil:
		t.Errorf("not found by %s in %s:\n%s", tests, pkg, out)
	case red == nil:
		t.Errorf("no test failed: %v\n%s", err, out)
	default:
		t.Logf("found by %s", red[1])
	}
}
