// Package docpages writes the pages of docs/reference that are generated from the sources.
package docpages

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// Main is the main function of a program that writes pages. pages makes them from the sources in the repository's root,
// by file name. With -check, the program writes nothing, and fails if a page is not what it would write.
func Main(pages func(root string) (map[string][]byte, error)) {
	root := flag.String("root", ".", "the repository's root, where the sources are read")
	check := flag.Bool("check", false, "compare the pages and write nothing")
	flag.Parse()
	if err := Write(pages, *root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

// Write writes the pages into docs/reference below root, or compares them if check is set.
func Write(pages func(root string) (map[string][]byte, error), root string, check bool) error {
	all, err := pages(root)
	if err != nil {
		return err
	}
	for name, want := range all {
		path := filepath.Join(root, "docs", "reference", name)
		if !check {
			if err := os.WriteFile(path, want, 0o644); err != nil { //nolint:gosec // a page for everyone to read
				return err
			}
			continue
		}
		have, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if string(have) != string(want) {
			return fmt.Errorf("%s is not what the sources say: run make docs", path)
		}
	}
	return nil
}
