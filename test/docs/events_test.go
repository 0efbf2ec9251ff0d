package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The reference lists every reason of the condition and of an event that the code declares, and no other.
func TestEventsAreDocumented(t *testing.T) {
	page := read(t, filepath.Join(root, "docs", "reference", "events.md"))
	listed := map[string]bool{}
	for line := range strings.Lines(page) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 3 {
			continue
		}
		for _, cell := range cells[:2] {
			for _, match := range regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(cell, -1) {
				listed[match[1]] = true
			}
		}
	}
	declared := map[string]bool{"NodeClaimDeleted": true, "NodeDeleted": true} // decide.EventDeleted makes them of kinds
	for file, pattern := range map[string]string{
		"internal/marks/condition.go":  `\bReason\w+\s+= "(\w+)"`,
		"internal/decide/event.go":     `\b(?:Warning|Normal)\("(\w+)"`,
		"internal/rules/rule/event.go": `\bdecide\.(?:Warning|Normal)\("(\w+)"`,
	} {
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, filepath.Join(root, file)), -1)
		if len(found) < 8 {
			t.Errorf("%s declares only %d reasons", file, len(found))
		}
		for _, match := range found {
			declared[match[1]] = true
			if !listed[match[1]] {
				t.Errorf("docs/reference/events.md lacks %s of %s", match[1], file)
			}
		}
	}
	for reason := range listed {
		if !declared[reason] {
			t.Errorf("docs/reference/events.md has %s, which the code does not declare", reason)
		}
	}
}
