// Package docs tests that what the pages point at is there.
package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/docs/commands"
	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

const root = "../.."

// pages are all Markdown files of the repository, without what is built.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"*.md", ".github/*.md", "docs/*.md", "docs/*/*.md",
		"docs/*/*/*.md", "deploy/helm/*/*.md", "examples/*.md", "examples/*/*.md", "test/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, files...)
	}
	if len(found) < 15 {
		t.Fatalf("only %d pages: %q", len(found), found)
	}
	return found
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	unslug   = regexp.MustCompile("[^a-z0-9 _-]")
	makeCall = regexp.MustCompile("make ([a-z][a-z0-9-]*(?: [a-z][a-z0-9-]*)*)")
)

// anchors are the fragments that a page's headings can be reached by, as GitHub makes them.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(commands.Prose(page), -1) {
		found[strings.ReplaceAll(unslug.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-")] = true
	}
	return found
}

// No page is left out of the tests, however new. Those below internal are parts of generated ones.
func TestEveryPageIsTested(t *testing.T) {
	tested := map[string]bool{}
	for _, page := range pages(t) {
		tested[strings.TrimPrefix(filepath.ToSlash(page), root+"/")] = true
	}
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-co", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	for page := range strings.Lines(string(out)) {
		page = strings.TrimSpace(page)
		if _, err := os.Stat(filepath.Join(root, page)); err == nil && !tested[page] && !strings.HasPrefix(page, "internal/") {
			t.Errorf("%s is not among the pages that are tested", page)
		}
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		for _, match := range link.FindAllStringSubmatch(commands.Prose(read(t, page)), -1) {
			target, fragment, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %s: %v", page, match[1], err)
				continue
			}
			if fragment != "" && !anchors(read(t, file))[fragment] {
				t.Errorf("%s: %s: the page has no such heading", page, match[1])
			}
		}
	}
}

// Code, templates, examples and error messages name pages by their path from the root.
func TestAddressesInCodeLeadSomewhere(t *testing.T) {
	named := regexp.MustCompile(`(\S*)\b(docs/[A-Za-z0-9/_-]+\.md)(?:#([a-z0-9-]+))?`)
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-co", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if strings.HasSuffix(name, ".md") || strings.HasPrefix(name, "test/docs/") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue // removed in the working tree, or a link to a folder
		}
		for _, match := range named.FindAllStringSubmatch(string(content), -1) {
			if strings.Contains(match[1], "://") && !strings.Contains(match[1], "/kube-node-ready/blob/") {
				continue // a page of another project
			}
			found++
			page := filepath.Join(root, match[2])
			if _, err := os.Stat(page); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if match[3] != "" && !anchors(read(t, page))[match[3]] {
				t.Errorf("%s: %s#%s: the page has no such heading", name, match[2], match[3])
			}
		}
	}
	if found < 80 {
		t.Errorf("only %d addresses of pages in code", found)
	}
}

// Targets that the pages and the workflows name are targets of the Makefile.
func TestMakeTargetsAreThere(t *testing.T) {
	targets := map[string]bool{}
	for line := range strings.Lines(read(t, filepath.Join(root, "Makefile"))) {
		if name, _, ok := strings.Cut(line, ":"); ok && regexp.MustCompile(`^[a-z][a-z0-9-]*$`).MatchString(name) {
			targets[name] = true
		}
	}
	code := regexp.MustCompile("(?s)```.*?```|`[^`]+`|run: [^\n]+")
	workflows, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yaml"))
	if err != nil || len(workflows) == 0 {
		t.Fatalf("workflows %q: %v", workflows, err)
	}
	for _, page := range append(pages(t), workflows...) {
		for _, piece := range code.FindAllString(read(t, page), -1) {
			for _, match := range makeCall.FindAllStringSubmatch(piece, -1) {
				for _, target := range strings.Fields(match[1]) {
					if !targets[target] {
						t.Errorf("%s: make %s: the Makefile has no such target", page, target)
					}
				}
			}
		}
	}
}

// Each generated page is linked and each example mentioned somewhere.
func TestNothingIsHidden(t *testing.T) {
	var all strings.Builder
	for _, page := range pages(t) {
		all.WriteString(read(t, page))
	}
	inputs.Track(t, filepath.Join(root, "docs"), filepath.Join(root, "examples"))
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "docs", "examples").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range strings.Fields(string(out)) {
		// docs/design/performance.md names the folder of the measurements, and CONTRIBUTING the sources of the pictures.
		source := strings.HasPrefix(file, "docs/pictures/") && !strings.HasSuffix(file, ".svg")
		if strings.HasSuffix(file, ".go") || strings.HasPrefix(file, "docs/bench/") || source {
			continue
		}
		if !strings.Contains(all.String(), filepath.Base(file)) {
			t.Errorf("no page mentions %s", file)
		}
	}
}

// The chart is read where there is no repository around it, from a package or a registry: its links lead out of it in full, to pages
// that are there.
func TestLinksOfThePackagedChart(t *testing.T) {
	const base = "https://github.com/kube-node-ready/kube-node-ready/blob/main/"
	chart := filepath.Join(root, "deploy", "helm", "kube-node-ready")
	bare := regexp.MustCompile(`(\S*)\b((?:docs|examples)/[A-Za-z/-]+\.(?:md|yaml))(?:#([a-z0-9-]+))?`)
	for _, name := range []string{"README.md", "values.yaml", "Chart.yaml", "templates/NOTES.txt"} {
		text := read(t, filepath.Join(chart, name))
		for _, match := range bare.FindAllStringSubmatch(text, -1) {
			if !strings.HasSuffix(match[1], base) {
				t.Errorf("%s: %s leads nowhere from a package", name, match[0])
			}
			file := filepath.Join(root, match[2])
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if match[3] != "" && !anchors(read(t, file))[match[3]] {
				t.Errorf("%s: %s: the page has no such heading", name, match[0])
			}
		}
		if strings.Contains(text, "](../") {
			t.Errorf("%s: a link leaves the package", name)
		}
	}
	icon := regexp.MustCompile(`(?m)^icon: https://raw\.githubusercontent\.com/kube-node-ready/kube-node-ready/main/(.+)$`).FindStringSubmatch(read(t, filepath.Join(chart, "Chart.yaml")))
	if icon == nil {
		t.Fatal("the chart has no icon of this repository")
	}
	if _, err := os.Stat(filepath.Join(root, icon[1])); err != nil {
		t.Error(err)
	}
}
