// Package supplychain tests what goes into the binaries, and that anybody can make the same ones.
package supplychain

import (
	"bytes"
	"debug/buildinfo"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/inputs"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

const root = "../.."

var update = flag.Bool("update", false, "write the list of modules anew")

var binaries = []string{"kube-node-ready-controller", "kube-node-ready-worker", "kubectl-node_ready"}

// Two copies of the sources in different places give the same bytes, whatever the time.
func TestTwoBuildsAreTheSame(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"cmd", "internal", "deploy", "Makefile"} { // of the other files it reads those that git lists
		inputs.Track(t, filepath.Join(root, path))
	}
	files, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--", ":!test").Output()
	if err != nil {
		missing.Skip(t, fmt.Sprintf("git's list of files: %v", err), "run the test in a clone")
	}
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	stamps := []string{"v1.2.3-stamp", "c0ffee-stamp", "1970-01-01T00:00:01Z"}
	var built [2]map[string][]byte
	for i := range built {
		dir := filepath.Join(t.TempDir(), strings.Repeat("deeper/", i+1))
		for file := range strings.SplitSeq(strings.TrimRight(string(files), "\x00"), "\x00") {
			content, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), "make", "build", "VERSION="+stamps[0], "COMMIT_HASH="+stamps[1], "SOURCE_DATE_EPOCH=1")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "MAKEFLAGS=", "GOCACHE="+strings.TrimSpace(string(cache)))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		built[i] = map[string][]byte{}
		for _, name := range binaries {
			if built[i][name], err = os.ReadFile(filepath.Join(dir, "bin", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range binaries {
		if !bytes.Equal(built[0][name], built[1][name]) {
			t.Errorf("two builds of %s differ", name)
		}
		for _, stamp := range stamps {
			if !bytes.Contains(built[0][name], []byte(stamp)) {
				t.Errorf("%s was built without the stamp %q", name, stamp)
			}
		}
	}
}

// licences that may be linked into a product under the Apache License 2.0, by words that only they have.
var licences = []struct {
	name string
	says *regexp.Regexp
}{
	{"Apache-2.0", regexp.MustCompile(`Apache License,? Version 2\.0`)},
	{"MIT", regexp.MustCompile(`Permission is hereby granted, free of charge.*without restriction`)},
	{"BSD-3-Clause", regexp.MustCompile(`Redistribution and use in source and binary forms.*[Nn]either the names? of`)},
	{"BSD-2-Clause", regexp.MustCompile(`Redistribution and use in source and binary forms`)},
	{"ISC", regexp.MustCompile(`Permission to use, copy, modify, and(/or)? distribute this software for any purpose`)},
}

func licence(t *testing.T, module string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = root
	dir, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", module, err)
	}
	found, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "LICEN[SC]E*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range licences {
			if l.says.MatchString(strings.Join(strings.Fields(string(text)), " ")) {
				return l.name
			}
		}
	}
	return "unknown"
}

// The modules in the binaries are the ones of the list, each under a licence that is allowed. One that is new is a change of the list:
// go test ./test/supplychain -update.
func TestDependenciesAreListed(t *testing.T) {
	t.Parallel()
	in := map[string][]string{}
	for _, name := range binaries {
		program, err := install.Binary(name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		for _, module := range info.Deps {
			in[module.Path] = append(in[module.Path], name)
			if module.Replace != nil {
				t.Errorf("%s is replaced", module.Path)
			}
		}
	}
	var list strings.Builder
	for _, module := range slices.Sorted(maps.Keys(in)) {
		l := licence(t, module)
		if l == "unknown" {
			t.Errorf("%s has no licence that is allowed", module)
		}
		list.WriteString(module + " " + l + " " + strings.Join(in[module], " ") + "\n")
	}
	const file = "testdata/modules.txt"
	if *update {
		if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != list.String() {
		t.Errorf("the binaries hold\n%s\nand %s lists\n%s", list.String(), file, want)
	}
}

// What the module cache holds is what go.sum says.
func TestModulesAreWhatGoSumSays(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "verify")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
