package chaos

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/missing"
	"github.com/kube-node-ready/kube-node-ready/test/mutants/patch"
)

const (
	// leastPlanted is how many planted bugs there must be.
	leastPlanted = 10
	// plantedSeed is the first seed that looks for one, and mostSeeds within how many it must be found.
	plantedSeed = 1000
	mostSeeds   = 20
)

// plantedPatches are the patches to try: those that have PLANTED in their names. The test is skipped if that is not set.
func plantedPatches(t *testing.T) []string {
	t.Helper()
	which := missing.Request(t, "PLANTED", "make chaos-planted")
	patches, err := filepath.Glob("planted/*.patch")
	if err != nil || len(patches) < leastPlanted {
		t.Fatalf("%d patches (%v), want %d", len(patches), err, leastPlanted)
	}
	patches = slices.DeleteFunc(patches, func(file string) bool { return !strings.Contains(plantedName(file), which) })
	if len(patches) == 0 {
		t.Fatalf("no patch has %q in its name", which)
	}
	return patches
}

func plantedName(file string) string { return strings.TrimSuffix(filepath.Base(file), ".patch") }

var (
	// wants is the line of a patch with a part of the fault by which it must be found. Without the line any fault
	// counts: on a slow machine, one that the bug did not cause may come first.
	wants = regexp.MustCompile(`(?m)^wants: (.+)$`)
	// needs is the line with the kinds of disturbances without which it cannot show. The runs then have no others: all
	// kinds together draw each too seldom.
	needs = regexp.MustCompile(`(?m)^needs: (.+)$`)
)

// lineOf is what a patch says in such a line; empty without it.
func lineOf(t *testing.T, file string, line *regexp.Regexp) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if said := line.FindSubmatch(content); said != nil {
		return string(said[1])
	}
	return ""
}

// Every planted bug applies to the sources: one that does not proves nothing. This comes first and takes a second, so
// that a long run begins with the list of those that have to be made anew.
func TestPlantedBugsApply(t *testing.T) {
	for _, file := range plantedPatches(t) {
		if _, err := patch.Apply(t.Context(), file, t.TempDir()); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if kinds := lineOf(t, file, needs); kinds != "" {
			named(t, kinds)
		}
	}
}

// Every planted bug is found. What is not found is a hole in what is checked. It takes long: make chaos-planted runs it.
func TestPlantedBugs(t *testing.T) {
	for _, file := range plantedPatches(t) {
		t.Run(plantedName(file), func(t *testing.T) {
			folder := t.TempDir()
			overlay, err := patch.Apply(t.Context(), file, folder)
			if err != nil {
				t.Fatal(err)
			}
			program, err := build(t, folder, "-overlay", overlay)
			if err != nil {
				t.Fatal(err)
			}
			c := &campaign{program: program, first: plantedSeed, count: mostSeeds, untilFault: true, wants: lineOf(t, file, wants)}
			if kinds := lineOf(t, file, needs); kinds != "" {
				c.only = named(t, kinds)
			}
			c.report = func(f found) {
				for i, what := range f.what[:min(2, len(f.what))] { // the first may be a heading
					f.what[i], _, _ = strings.Cut(what, "\n")
				}
				t.Logf("found by seed %d, run %d: %s", f.seed, f.seed-c.first+1, strings.Join(f.what[:min(2, len(f.what))], " "))
			}
			c.run(t.Context())
			if len(c.faults) == 0 {
				t.Fatalf("not found within %d seeds:\n%s\n%v", mostSeeds, &c.total, c.errs)
			}
		})
	}
}
