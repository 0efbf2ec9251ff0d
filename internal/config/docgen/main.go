// Command docgen writes docs/configuration.md: every key of the configuration file, from the
// struct types that it is read into, their doc comments, and the defaults they are given.
//
//	go run ./internal/config/docgen          # rewrite the page
//	go run ./internal/config/docgen -check   # fail if the page is not what it would write
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "the repository's root, where the sources are read")
	check := flag.Bool("check", false, "compare the page and write nothing")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	want, err := page(root)
	if err != nil {
		return err
	}
	path := filepath.Join(root, "docs", "configuration.md")
	if !check {
		return os.WriteFile(path, want, 0o644) //nolint:gosec // a page for everyone to read
	}
	have, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if string(have) != string(want) {
		return fmt.Errorf("%s is not what the sources say: run make docs", path)
	}
	return nil
}
