package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// evidence says what a group of guards is evaluated on, by the evidence that it needs.
var evidence = map[decide.Need]string{
	decide.NeedNothing:   "the node itself",
	decide.NeedProbes:    "a control probe on a verified node, for each failed attempt",
	decide.NeedLedger:    "the ledger: a read from the API server",
	decide.NeedCounts:    "counts of nodes: in memory",
	decide.NeedWorkloads: "the pods on the node: a list from the API server",
	decide.NeedOwner:     "the node's owner: a list of NodeClaims",
}

// lineLength is how many characters fit beside a guard's name.
const lineLength = 78

// guardsSource is the picture's source: the guards by the evidence that they need, in the order of evaluation. The
// control probe is evaluated before the others, when an attempt fails.
func guardsSource() (string, error) {
	var groups [][]decide.Guard
	for _, g := range decide.Guards() {
		if n := len(groups); n > 0 && slices.Equal(groups[n-1][0].Needs, g.Needs) {
			groups[n-1] = append(groups[n-1], g)
			continue
		}
		groups = append(groups, []decide.Guard{g})
	}
	early := func(group []decide.Guard) bool { return slices.Contains(group[0].Needs, decide.NeedProbes) }
	var before, after [][]decide.Guard
	for _, group := range groups {
		if early(group) {
			before = append(before, group)
		} else {
			after = append(after, group)
		}
	}

	var b strings.Builder
	b.WriteString(`# The guards, in their order. make docs writes this file from internal/decide/guards.go.
...@style

direction: down

failed: an attempt fails {class: bad}
exhausted: "no retry is left, or the deadline counts as that" {class: bad}
fresh: "all evidence is read again from the API server,\nand the guards are evaluated again" {class: quiet}
action: "the action" {class: wait}
`)
	last, label := "failed", ""
	for i, group := range append(slices.Clone(before), after...) {
		if i == len(before) {
			fmt.Fprintf(&b, "%s -> exhausted%s\n", last, label)
			last, label = "exhausted", ""
		}
		name := fmt.Sprintf("group%d", i+1)
		if err := writeGroup(&b, name, group); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s -> %s%s\n", last, name, label)
		last, label = name, ": none holds"
		if early(group) {
			label = ": the failure counts"
		}
	}
	fmt.Fprintf(&b, "%s -> fresh%s\nfresh -> action%s\n", last, label, label)
	return b.String(), nil
}

func writeGroup(b *strings.Builder, name string, group []decide.Guard) error {
	need := decide.NeedNothing
	if needs := group[0].Needs; len(needs) > 0 {
		need = needs[0]
	}
	heading, ok := evidence[need]
	if !ok || len(group[0].Needs) > 1 {
		return fmt.Errorf("guard %s: test/docs/pictures/guards.go has no heading for its evidence %q",
			group[0].Name, group[0].Needs)
	}
	fmt.Fprintf(b, "\n%s: %q {\n  class: group\n  grid-rows: %d\n  grid-columns: 2\n", name, heading, len(group))
	for i, g := range group {
		lines := wrap(strings.ReplaceAll(g.About, "`", ""), lineLength)
		size := ""
		if len(lines) > 1 {
			size = "2"
		}
		fmt.Fprintf(b, "  name%d: %s {class: name%s}\n", i+1, g.Name, size)
		fmt.Fprintf(b, "  about%d: %q {class: about%s}\n", i+1, strings.Join(lines, "\n"), size)
	}
	b.WriteString("}\n")
	return nil
}

// wrap breaks a text into lines of about the same length, none of which is longer than the limit.
func wrap(text string, limit int) []string {
	count := (len(text) + limit - 1) / limit
	for length := len(text) / count; ; length++ {
		var lines []string
		line := ""
		for word := range strings.FieldsSeq(text) {
			if line != "" && len(line)+1+len(word) > length {
				lines, line = append(lines, line), ""
			}
			line = strings.TrimSpace(line + " " + word)
		}
		if lines = append(lines, line); len(lines) <= count || length >= limit {
			return lines
		}
	}
}
