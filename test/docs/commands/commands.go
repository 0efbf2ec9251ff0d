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
}

var (
	fence = regexp.MustCompile("^( *)```(\\S*)$")
	mark  = regexp.MustCompile(`^ *<!-- (not run: (.+)|run by (\S+)) -->$`)
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
				b.NotRun, b.RunBy = m[2], m[3]
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
			found = append(found, b)
		}
	}
	return found, nil
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
