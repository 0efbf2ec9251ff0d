package check_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
)

func reasons(t *testing.T) []check.Reason {
	all, err := check.Reasons()
	if err != nil || len(all) < 50 {
		t.Fatalf("found %d reasons: %v", len(all), err)
	}
	return all
}

// TestReasonsAreDocumented keeps docs/reference/checks.md in step with the closed list of reasons. The types are in
// docs/reference/configuration.md, which is made from the table.
func TestReasonsAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../../../docs/reference/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	reasons := reasons(t)
	for _, r := range reasons {
		if !strings.Contains(page, "\n| `"+r.String()+"` |") {
			t.Errorf("docs/reference/checks.md does not list the reason %s", r)
		}
	}
	_, table, _ := strings.Cut(page, "\n## Reasons\n")
	table, _, _ = strings.Cut(table, "\n## ")
	if rows := strings.Count(table, "\n| `"); rows != len(reasons) {
		t.Errorf("docs/reference/checks.md lists %d reasons, there are %d", rows, len(reasons))
	}
}

// TestWhatIsAskedAgainIsDocumented keeps the table of what is asked again in step with the rule.
func TestWhatIsAskedAgainIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../../docs/reference/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(data), "\n## What is asked again\n")
	_, table, _ = strings.Cut(table, "\n| asked again by |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, r := range reasons(t) {
		again := r.Transient() || r.Refusal()
		if listed := strings.Contains(table, "`"+r.String()+"`"); listed != again {
			t.Errorf("%s: asked again %t, in the table of docs/reference/checks.md %t", r, again, listed)
		}
	}
}

// TestTheListIsClosed: nobody else can make a reason, for a literal does not compile as one.
func TestTheListIsClosed(t *testing.T) {
	reason := reflect.TypeFor[check.Reason]()
	if reason.Kind() != reflect.Struct || reason.NumField() != 1 || reason.Field(0).IsExported() {
		t.Errorf("a %s can be made by other packages", reason)
	}
	words := map[string]bool{}
	for _, r := range reasons(t) {
		if r == check.NoReason || words[r.String()] {
			t.Errorf("%q is empty or there twice", r)
		}
		words[r.String()] = true
	}
}
