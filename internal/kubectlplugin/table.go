package kubectlplugin

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
)

// table is printed as kubectl prints one: columns three spaces apart, the last one unpadded.
type table struct {
	header []string
	rows   [][]string
	// paint, when set, colours a cell; text/tabwriter would count the colour's characters.
	paint func(column int, text string) string
}

const gap = 3

func (t *table) print(w *bytes.Buffer, header bool) {
	widths := make([]int, len(t.header))
	lines := t.rows
	if header {
		lines = append([][]string{t.header}, lines...)
	}
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for at, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			text := cell
			if t.paint != nil && (at > 0 || !header) {
				text = t.paint(i, cell)
			}
			b.WriteString(text)
			if i < len(line)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+gap))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// colours of the statuses, as ANSI attributes.
var colours = map[string]string{
	"verified": "32", "verifying": "36", "pending": "33", "failed": "31", "held": "35", "excluded": "2", "unmanaged": "2", "deleting": "2",
}

func coloured(status string) string {
	if code := colours[status]; code != "" {
		return "\x1b[" + code + "m" + status + "\x1b[0m"
	}
	return status
}

// clip cuts text to a table's cell and keeps it on one line: it may come from a worker's report.
func clip(text string, most int) string {
	text = plain(text)
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// plain makes one line of text, without characters that would steer the terminal.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError:
			return -1
		}
		return r
	}, text)
}

// age is how long before now t was; empty for none.
func age(t *time.Time, now time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(*t))
}

// until is how long after now t is.
func until(t, now time.Time) string {
	return "in " + duration.HumanDuration(t.Sub(now).Round(time.Second))
}
