package chaos

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

const (
	// leastPlanted is how many planted bugs there must be.
	leastPlanted = 10
	// plantedSeed is the first seed that looks for one, and mostSeeds within how many it must be found.
	plantedSeed = 1000
	mostSeeds   = 20
)

func plantedPatches(t *testing.T) []string {
	t.Helper()
	patches, err := filepath.Glob("planted/*.patch")
	if err != nil || len(patches) < leastPlanted {
		t.Fatalf("%d patches (%v), want %d", len(patches), err, leastPlanted)
	}
	return patches
}

// Every planted bug still applies to the sources: one that does not would prove nothing.
func TestPlantedBugsApply(t *testing.T) {
	for _, patch := range plantedPatches(t) {
		if _, err := plant(t.Context(), patch, t.TempDir()); err != nil {
			t.Errorf("%s: %v", patch, err)
		}
	}
}

// Every planted bug is found. What is not found is a hole in what is checked. It takes long: make chaos-planted runs it, PLANTED is
// a part of the patches' names.
func TestPlantedBugs(t *testing.T) {
	which, set := os.LookupEnv("PLANTED")
	if !set {
		t.Skip("PLANTED is not set")
	}
	for _, patch := range plantedPatches(t) {
		name := strings.TrimSuffix(filepath.Base(patch), ".patch")
		if !strings.Contains(name, which) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			overlay, err := plant(t.Context(), patch, folder)
			if err != nil {
				t.Fatal(err)
			}
			program, err := build(t, folder, "-overlay", overlay)
			if err != nil {
				t.Fatal(err)
			}
			c := &campaign{program: program, first: plantedSeed, count: mostSeeds, untilFault: true}
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

// plant applies a patch to copies of the files that it touches, and returns an overlay for go build that puts them in the place
// of the sources.
func plant(ctx context.Context, patch, folder string) (overlay string, err error) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(patch)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for line := range strings.Lines(string(content)) {
		file, ok := strings.CutPrefix(strings.TrimSpace(line), "+++ b/")
		if !ok {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		copied := filepath.Join(folder, "planted", file)
		if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(copied, source, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = copied
	}
	cmd := command(ctx, filepath.Join(folder, "planted"), "git", "apply", "--unsafe-paths", "-")
	cmd.Stdin = strings.NewReader(string(content))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errorOf("apply the patch", err, out)
	}
	overlay = filepath.Join(folder, "overlay.json")
	written, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, written, 0o600)
}
