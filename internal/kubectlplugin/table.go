package kubectlplugin

import (
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kube-node-ready/kube-node-ready/internal/table"
)

// print prints a table, painted where colours are wanted.
func (v *invocation) print(rows [][]string, paint func(row, column int, text string) string) {
	if !v.colour {
		paint = nil
	}
	_ = table.Write(&v.out, rows, paint) // a buffer takes everything
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
