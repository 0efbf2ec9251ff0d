package check_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestReasonsAreDocumented keeps docs/checks.md in step with the closed list of reasons. The types are in
// docs/configuration.md, which is made from the table.
func TestReasonsAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../../../docs/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	reasons := declaredReasons(t)
	for _, r := range reasons {
		if !strings.Contains(page, "\n| `"+r+"` |") {
			t.Errorf("docs/checks.md does not list the reason %s", r)
		}
	}
	_, table, _ := strings.Cut(page, "\n## Reasons\n")
	table, _, _ = strings.Cut(table, "\n## ")
	if rows := strings.Count(table, "\n| `"); rows != len(reasons) {
		t.Errorf("docs/checks.md lists %d reasons, there are %d", rows, len(reasons))
	}
}

// declaredReasons reads the values of the constants that are called Reason... from the source.
func declaredReasons(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "finding.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && strings.HasPrefix(spec.Names[0].Name, "Reason") {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value)
		}
		return true
	})
	if len(values) < 40 {
		t.Fatalf("only %d reasons were found", len(values))
	}
	return values
}
