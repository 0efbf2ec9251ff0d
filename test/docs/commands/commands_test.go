package commands

import (
	"slices"
	"testing"
)

const page = "1. A step.\n\n   <!-- run by test/e2e, once a node fails -->\n   ```sh\n   kubectl get NODE\n   ```\n\n   It shows:\n\n" +
	"   ```sh\n   kubectl wait\n   ```\n\n   ```text\n   node/NODE  is … so\n     second\n   ```\n\n" +
	"   <!-- run by test/e2e, once it leads -->\n   ```promql\n   sum(leader)   # 1\n   rate(x[5m])\n   ```\n\n<!-- not run: no -->\n```sh\nrm\n```\n"

func TestOf(t *testing.T) {
	found, err := Of(page)
	if err != nil || len(found) != 3 {
		t.Fatalf("%+v, %v", found, err)
	}
	first, second, third := found[0], found[1], found[2]
	if first.RunBy != "test/e2e" || first.Once != "a node fails" || first.Script != "kubectl get NODE\n" || first.Shows != nil {
		t.Errorf("%+v", first)
	}
	if second.RunBy != "" || !slices.Equal(second.Shows, []string{"node/NODE  is … so", "  second"}) {
		t.Errorf("%+v", second)
	}
	if third.NotRun != "no" || third.Once != "" || third.Line != 26 {
		t.Errorf("%+v", third)
	}
	if queries := QueriesOf(page); len(queries) != 1 || queries[0] != (Query{Line: 21, Expression: "sum(leader)", Value: "1", Once: "it leads"}) {
		t.Errorf("%+v", queries)
	}
}

func TestMatches(t *testing.T) {
	for shown, lines := range map[string]map[string]bool{
		"node/a  is … so": {"node/a is very so": true, "node/a is so": false, "node/b is very so": false},
		"held … (5)":      {"held by 2 (5)": true, "held by 2 (5) and": false, "held by 2 5": false},
	} {
		for line, want := range lines {
			if got := Matches(shown, line); got != want {
				t.Errorf("%q shows %q: %t", line, shown, got)
			}
		}
	}
}
