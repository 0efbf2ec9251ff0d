package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

//go:embed presets.md
var presetsText string

// presetsPage is presets.md with the tables in their places.
func presetsPage() ([]byte, error) {
	var table, details strings.Builder
	table.WriteString("| preset | without it | reported in |\n|---|---|---|\n")
	for _, d := range config.Presets() {
		var reports, sources []string
		for _, r := range d.Reports {
			reports = append(reports, fmt.Sprintf("[%s](%s)", reportName(r), r))
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", d.Name, d.Trouble+".", strings.Join(reports, ", "))
		stands, err := yaml.Marshal(d.Expansion())
		if err != nil {
			return nil, err
		}
		for _, s := range d.Sources {
			sources = append(sources, "`"+s+"`")
		}
		const section = "### %s\n\n%s\n\n```yaml\n%s```\n\n"
		fmt.Fprintf(&details, section, d.Name, wrapped("Names as in "+strings.Join(sources, " and ")+"."), stands)
	}
	page := "<!-- Written by go run ./internal/config/docgen (make docs). " +
		"Change internal/config/presets.go or internal/config/docgen/presets.md. -->\n\n" + presetsText
	page = strings.Replace(page, "<!-- presets -->\n", table.String(), 1)
	return []byte(strings.Replace(page, "<!-- prerequisites -->\n\n", details.String(), 1)), nil
}

var threadForm = regexp.MustCompile(`^https://github\.com/[^/]+/([^/]+)/(?:issues|pull)/(\d+)$`)

// reportName is repository#number.
func reportName(address string) string { return threadForm.ReplaceAllString(address, "$1#$2") }
