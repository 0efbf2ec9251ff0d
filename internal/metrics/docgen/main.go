// Command docgen writes docs/reference/metrics.md: every metric of the controller, from the collectors that
// export it.
//
//	go run ./internal/metrics/docgen          # rewrite the page
//	go run ./internal/metrics/docgen -check   # fail if the page is not what it would write
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "the repository's root")
	check := flag.Bool("check", false, "compare the page and write nothing")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	want, err := page()
	if err != nil {
		return err
	}
	path := filepath.Join(root, "docs", "reference", "metrics.md")
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
