package kubectlplugin

import (
	"strings"
	"testing"
)

// Columns are aligned by characters, with or without colours, and no line ends with a space.
func TestTable(t *testing.T) {
	rows := [][]string{{"NODE", "STATUS", "WHY"}, {"  nöde", "failed", "check dns"}, {"b", "verified", ""}, {"c", "c", "c"}}
	paint := func(row, column int, text string) string {
		if row > 0 && column == 1 {
			return "\x1b[32m" + text + "\x1b[0m"
		}
		return text
	}
	want := "NODE     STATUS     WHY\n  nöde   failed     check dns\nb        verified\nc        c          c\n"
	for _, colour := range []bool{false, true} {
		v := invocation{colour: colour}
		v.print(rows, paint)
		got := v.out.String()
		if n := strings.Count(got, "\x1b[32m"); colour != (n == 3) {
			t.Errorf("colour %v: %d cells are painted", colour, n)
		}
		if got = strings.NewReplacer("\x1b[32m", "", "\x1b[0m", "").Replace(got); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}
