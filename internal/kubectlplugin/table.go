package kubectlplugin

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
)

// print prints a table as kubectl does. Where colours are wanted, it is painted once it is laid out: the printer would
// count the characters of a colour.
func (v *invocation) print(rows [][]string, paint func(row, column int, text string) string) {
	var laid bytes.Buffer // it takes everything
	w := printers.GetNewTabWriter(&laid)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush()
	for n, row := range rows {
		line, _ := laid.ReadString('\n')
		for i, cell := range row {
			before, after, _ := strings.Cut(line, cell)
			if v.colour && paint != nil {
				cell = paint(n, i, cell)
			}
			v.out.WriteString(before + cell)
			line = after
		}
		v.out.WriteByte('\n')
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
