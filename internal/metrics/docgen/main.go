// Command docgen writes docs/reference/metrics.md: every metric of the controller, from the collectors that
// export it.
//
//	go run ./internal/metrics/docgen          # rewrite the page
//	go run ./internal/metrics/docgen -check   # fail if the page is not what it would write
package main

import "github.com/kube-node-ready/kube-node-ready/internal/docpages"

func main() { docpages.Main(pages) }

func pages(string) (map[string][]byte, error) {
	metrics, err := page()
	return map[string][]byte{"metrics.md": metrics}, err
}
