// Package commands finds the commands that a page gives, so that tests can run them as they stand there.
package commands

import (
	"fmt"
	"regexp"
	"strings"
)

// Block is a fenced block of commands.
type Block struct {
	// Line is the block's first line in the page, counted from 1.
	Line int
	// Script is what a shell reads: the block without its indentation and, of a console's, the lines after "$ ".
	Script string
	// NotRun is why no test runs it; empty where one does.
	NotRun string
	// RunBy is the folder of the test that runs it, where that is not test/docs.
	RunBy string
	// Once is what has to happen in the cluster before a reader runs it, in the page's words: the test makes it happen. Empty
	// where nothing has to.
	Once string
	// Shows are the lines that the reader sees, among others: the block of text after the commands. "…" stands for anything.
	// Empty where the page shows none.
	Shows []string
}

// Query is a query of Prometheus that a page gives, with what it returns: a line "query # value" of a block of promql.
type Query struct {
	// Line is its line in the page, counted from 1.
	Line int
	// Expression is the query, Value its only result as Prometheus writes it.
	Expression, Value string
	// Once is what has to happen first, as of a Block's.
	Once string
}

var (
	fence = regexp.MustCompile("^( *)```(\\S*)$")
	mark  = regexp.MustCompile(`^ *<!-- (not run: (.+)|run by ([^\s,]+)(?:, once (.+))?) -->$`)
	query = regexp.MustCompile(`^(.+?) +# (\S+)$`)
)

// languages are those of blocks that hold commands, and those of blocks that do not.
var languages = map[string]bool{"sh": true, "bash": true, "console": true, "yaml": false, "json": false, "text": false, "promql": false, "go": false}

// Of lists a page's blocks of commands. A mark is a comment on the line before the block. An error names a block whose language is
// not known.
func Of(page string) ([]Block, error) {
	var found []Block
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		open := fence.FindStringSubmatch(lines[i])
		if open == nil {
			continue
		}
		indent, language := open[1], open[2]
		commands, known := languages[language]
		if !known {
			return nil, fmt.Errorf("line %d: a block of language %q: is it one of commands?", i+1, language)
		}
		b := Block{Line: i + 1}
		if i > 0 {
			if m := mark.FindStringSubmatch(lines[i-1]); m != nil {
				b.NotRun, b.RunBy, b.Once = m[2], m[3], m[4]
			}
		}
		var script strings.Builder
		for i++; i < len(lines) && lines[i] != indent+"```"; i++ {
			line := strings.TrimPrefix(lines[i], indent)
			if language == "console" {
				command, isCommand := strings.CutPrefix(line, "$ ")
				if !isCommand {
					continue
				}
				line = command
			}
			script.WriteString(line + "\n")
		}
		if b.Script = script.String(); commands {
			b.Shows = shown(lines[min(i+1, len(lines)):])
			found = append(found, b)
		}
	}
	return found, nil
}

// shown are the lines of the block of text that follows next, without their indentation; none where something else follows.
func shown(lines []string) (text []string) {
	for len(lines) > 0 && lines[0] == "" {
		lines = lines[1:]
	}
	if len(lines) == 0 {
		return nil
	}
	open := fence.FindStringSubmatch(lines[0])
	if open == nil || open[2] != "text" {
		return nil
	}
	for _, line := range lines[1:] {
		if line == open[1]+"```" {
			break
		}
		text = append(text, strings.TrimPrefix(line, open[1]))
	}
	return text
}

// Matches reports whether a line of a program's output is one that a page shows: words alike, however they are spaced, and "…"
// stands for anything.
func Matches(shown, line string) bool {
	var pattern strings.Builder
	for i, part := range strings.Split(strings.Join(strings.Fields(shown), " "), "…") {
		if i > 0 {
			pattern.WriteString(".*")
		}
		pattern.WriteString(regexp.QuoteMeta(part))
	}
	return regexp.MustCompile("^" + pattern.String() + "$").MatchString(strings.Join(strings.Fields(line), " "))
}

// QueriesOf lists the queries of a page that say what they return.
func QueriesOf(page string) []Query {
	var found []Query
	inside, once := false, ""
	lines := strings.Split(page, "\n")
	for i, line := range lines {
		if open := fence.FindStringSubmatch(line); open != nil {
			inside, once = open[2] == "promql", ""
			if m := mark.FindStringSubmatch(lines[max(i-1, 0)]); m != nil {
				once = m[4]
			}
		} else if m := query.FindStringSubmatch(strings.TrimSpace(line)); inside && m != nil {
			found = append(found, Query{Line: i + 1, Expression: m[1], Value: m[2], Once: once})
		}
	}
	return found
}

// Inline is a command in a sentence or a table of a page.
type Inline struct {
	// Line is its line in the page, counted from 1.
	Line int
	// Command is what somebody pastes into a shell.
	Command string
}

var (
	blocks = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	code   = regexp.MustCompile("`((?:kubectl|helm)\\s[^`]+)`") // a line may end after its first word
	// A command without an operand is named, not given: helm upgrade, kubectl apply -f.
	named = regexp.MustCompile(`^(kubectl node-ready|kubectl( rollout)?|helm) [a-z-]+( --?[a-z]+)?$`)
)

// Prose is a page without its blocks, whose lines are left empty.
func Prose(page string) string {
	return blocks.ReplaceAllStringFunc(page, func(block string) string { return strings.Repeat("\n", strings.Count(block, "\n")) })
}

// InlineOf lists the commands of kubectl and Helm that a page gives outside of blocks. Those that it only names, and those with an
// ellipsis, are left out.
func InlineOf(page string) []Inline {
	var found []Inline
	text := Prose(page)
	for _, m := range code.FindAllStringSubmatchIndex(text, -1) {
		command := strings.Join(strings.Fields(strings.ReplaceAll(text[m[2]:m[3]], `\|`, "|")), " ")
		if !named.MatchString(command) && !strings.ContainsAny(command, "…[") && !strings.Contains(command, "...") {
			found = append(found, Inline{Line: 1 + strings.Count(text[:m[0]], "\n"), Command: command})
		}
	}
	return found
}
