package resources

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestPerNode(t *testing.T) {
	for selector, want := range map[string]string{
		"":                                "",
		"tier=agent":                      "",
		"node={{node}}":                   "node [{{node}}]",
		"node=={{node}}":                  "node [{{node}}]",
		"tier=xy,k8s.io/node={{node}}":    "k8s.io/node [{{node}}]",
		"node in ({{node}},shared)":       "node [shared {{node}}]",
		"node=x{{node}}xy":                "node [x{{node}}xy]",
		"node!={{node}}":                  "",
		"node notin ({{node}})":           "",
		"{{node}}=here":                   "",
		"{{node}}":                        "",
		"tier=" + strings.Repeat("a", 63): "",
	} {
		label, values := perNode(selector)
		slices.Sort(values)
		got := ""
		if label != "" {
			got = fmt.Sprint(label, " ", values)
		}
		if got != want {
			t.Errorf("%q is indexed by %q, not %q", selector, got, want)
		}
	}
}
