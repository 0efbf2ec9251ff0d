package table_test

import (
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/table"
)

func TestWrite(t *testing.T) {
	rows := [][]string{{"NODE", "STATUS", "WHY"}, {"kübe", "failed", "a long reason"}, {"a-longer-name", "ok", ""}}
	for name, c := range map[string]struct {
		paint func(row, column int, text string) string
		want  string
	}{
		"plain": {nil, "NODE            STATUS   WHY\nkübe            failed   a long reason\na-longer-name   ok\n"},
		"colour does not count": {func(row, column int, text string) string {
			if row == 1 && column == 1 {
				return "\x1b[31m" + text + "\x1b[0m"
			}
			return text
		}, "NODE            STATUS   WHY\nkübe            \x1b[31mfailed\x1b[0m   a long reason\na-longer-name   ok\n"},
	} {
		var b strings.Builder
		if err := table.Write(&b, rows, c.paint); err != nil || b.String() != c.want {
			t.Errorf("%s: got %v\n%s", name, err, b.String())
		}
	}
}
