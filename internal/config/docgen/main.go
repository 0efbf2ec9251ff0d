// Command docgen writes docs/reference/configuration.md and docs/reference/presets.md. It generates the first from the
// struct types of the configuration file, their doc comments and their defaults.
//
//	go run ./internal/config/docgen          # rewrite the pages
//	go run ./internal/config/docgen -check   # fail if a page is not what it would write
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "the repository's root, where the sources are read")
	check := flag.Bool("check", false, "compare the pages and write nothing")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	configuration, err := page(root)
	if err != nil {
		return err
	}
	presets, err := presetsPage()
	if err != nil {
		return err
	}
	for name, want := range map[string][]byte{"configuration.md": configuration, "presets.md": presets} {
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
