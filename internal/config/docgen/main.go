// Command docgen writes docs/reference/configuration.md and docs/reference/presets.md. It generates the first from the
// struct types of the configuration file, their doc comments and their defaults.
//
//	go run ./internal/config/docgen          # rewrite the pages
//	go run ./internal/config/docgen -check   # fail if a page is not what it would write
package main

import "github.com/kube-node-ready/kube-node-ready/internal/docpages"

func main() { docpages.Main(pages) }

func pages(root string) (map[string][]byte, error) {
	configuration, err := page(root)
	if err != nil {
		return nil, err
	}
	presets, err := presetsPage()
	return map[string][]byte{"configuration.md": configuration, "presets.md": presets}, err
}
