// Package prose reads the sentences of a Markdown page, so that a test can hold the pages to a style: plain words, short
// sentences, lines of at most 120 characters. Vale does more, and needs a C compiler to be built, which nothing else here does.
package prose

import (
	"regexp"
	"strings"
)

// Sentence is one sentence of a page's paragraphs and lists. Blocks of code, tables, headings and comments have none.
type Sentence struct {
	// Line is where its paragraph begins, counted from 1.
	Line int
	// Text is the sentence without Markdown's marks. Code in it is one word, and may begin a sentence.
	Text string
}

// Words is how many words the sentence has.
func (s Sentence) Words() int { return len(word.FindAllString(s.Text, -1)) }

var (
	fence   = regexp.MustCompile("^ *```")
	rule    = regexp.MustCompile(`^\|[-:| ]+\|$`)
	item    = regexp.MustCompile(`^(?:[-*]|\d+\.)\s+`)
	link    = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	code    = regexp.MustCompile("`[^`]*`")
	word    = regexp.MustCompile(`[A-Za-z0-9][\w'’/.-]*`)
	between = regexp.MustCompile(`[.!?]["')*]*\s+["'(*]*[A-Z0-9]`)
)

// Sentences are the sentences of a page, in their order.
func Sentences(page string) []Sentence {
	var found []Sentence
	var paragraph []string
	begin, inCode, inComment := 0, false, false
	end := func() {
		text := link.ReplaceAllString(strings.Join(paragraph, " "), "$1")
		text = strings.ReplaceAll(code.ReplaceAllString(text, "Code"), "**", "")
		for _, s := range split(text) {
			found = append(found, Sentence{Line: begin, Text: s})
		}
		paragraph = nil
	}
	for i, line := range strings.Split(page, "\n") {
		text := strings.TrimSpace(line)
		switch {
		case fence.MatchString(line):
			inCode = !inCode
			end()
			continue
		case inCode:
			continue
		case strings.HasPrefix(text, "<!--"), inComment:
			inComment = !strings.HasSuffix(text, "-->")
			end()
			continue
		case text == "", strings.HasPrefix(text, "|"), strings.HasPrefix(text, "#"):
			end()
			continue
		}
		if mark := item.FindString(text); mark != "" {
			end()
			text = text[len(mark):]
		}
		if paragraph == nil {
			begin = i + 1
		}
		paragraph = append(paragraph, text)
	}
	end()
	return found
}

// Cells are the sentences in the tables of a page, in their order. A semicolon ends one, as a table's cell has lists in it.
func Cells(page string) []Sentence {
	var found []Sentence
	inCode := false
	for i, line := range strings.Split(page, "\n") {
		text := strings.TrimSpace(line)
		if fence.MatchString(line) {
			inCode = !inCode
		}
		if inCode || !strings.HasPrefix(text, "|") || rule.MatchString(text) {
			continue
		}
		text = link.ReplaceAllString(code.ReplaceAllString(text, "Code"), "$1")
		for cell := range strings.SplitSeq(strings.ReplaceAll(text, "**", ""), "|") {
			for _, s := range split(cell) {
				for part := range strings.SplitSeq(s, "; ") {
					if part = strings.TrimSpace(part); word.MatchString(part) {
						found = append(found, Sentence{Line: i + 1, Text: part})
					}
				}
			}
		}
	}
	return found
}

// split cuts a paragraph where one sentence ends and the next one begins.
func split(paragraph string) []string {
	var found []string
	for {
		at := between.FindStringIndex(paragraph)
		if at == nil {
			break
		}
		found = append(found, strings.TrimSpace(paragraph[:at[0]+1]))
		paragraph = paragraph[at[0]+1:]
	}
	if rest := strings.TrimSpace(paragraph); word.MatchString(rest) {
		found = append(found, rest)
	}
	return found
}

// LongLines are the lines of a page, counted from 1, that have more than limit characters and could be broken. Table
// rows, code, and a word that is itself longer than the limit cannot be broken.
func LongLines(page string, limit int) []int {
	var found []int
	inCode := false
	for i, line := range strings.Split(page, "\n") {
		if fence.MatchString(line) {
			inCode = !inCode
		}
		text := strings.TrimSpace(line)
		if inCode || strings.HasPrefix(text, "|") || strings.HasPrefix(text, "<!--") || strings.HasPrefix(text, "#") ||
			strings.HasPrefix(text, "![") || len([]rune(line)) <= limit {
			continue
		}
		if at := strings.LastIndex(string([]rune(line)[:limit+1]), " "); at > len(line)-len(strings.TrimLeft(line, " -")) {
			found = append(found, i+1)
		}
	}
	return found
}
