package checks_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/test/inputs"
)

// A type of check is added in two places: its folder and a line of the table. The line is added to a copy,
// which the compiler takes for the table.
func TestANewTypeTouchesTwoPlaces(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	inputs.Track(t, filepath.Join(root, "cmd"), filepath.Join(root, "internal"))
	table, err := os.ReadFile("table.go")
	if err != nil {
		t.Fatal(err)
	}
	const line = "\tExec             *exec.Settings"
	const dns = `"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"`
	added := strings.Replace(string(table), line, "\tWeekday *weekday.Settings `json:\"weekday,omitempty\"`\n"+line, 1)
	added = strings.Replace(added, dns, dns+"\n\t"+strings.Replace(dns, "/dns", "/weekday", 1), 1)
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	here := filepath.Join(root, "internal/worker/checks")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(here, "table.go"):           file("table.go", added),
		filepath.Join(here, "weekday/weekday.go"): filepath.Join(here, "testdata/weekday/weekday.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	programs := filepath.Join(dir, "bin")
	build := exec.Command("go", "build", "-overlay", file("overlay.json", string(overlay)), "-o", programs+"/", "./internal/config/docgen", "./cmd/worker")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(program string, env string, args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(programs, program), args...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), env)
		out, _ := cmd.CombinedOutput() // what it prints says how it ended
		return string(out)
	}
	// Sources as the generator of the page reads them: this tree, and the folder in its place.
	sources := filepath.Join(dir, "sources")
	if err := os.CopyFS(filepath.Join(sources, "internal"), os.DirFS(filepath.Join(root, "internal"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(sources, "internal/worker/checks/testdata/weekday"), filepath.Join(sources, "internal/worker/checks/weekday")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(sources, "docs", "reference"), 0o700); err != nil {
		t.Fatal(err)
	}
	documented := run("docgen", "A=", "-root", sources)
	page, err := os.ReadFile(filepath.Join(sources, "docs/reference/configuration.md"))
	if err != nil {
		t.Fatal(documented, err)
	}
	for _, c := range []struct{ of, got, want string }{
		{"documentation of the type", string(page), "| `weekday` | mapping |  | Looks at the calendar. Its keys are below. |"},
		{"documentation of a key", string(page), "\n### worker.checks[].weekday\n\n| key | type | default | meaning |\n|---|---|---|---|\n| `not` | string |  | A day that fails. |"},
		{"a key that is unknown", run("worker", `KUBE_NODE_READY_CONFIG={"worker": {"checks": [{"name": "a", "type": "weekday", "weekday": {"nott": "Never"}}]}}`),
			`worker.checks[0].weekday.nott: unknown key; did you mean "not"?`},
		{"a value that is missing", run("worker", "KUBE_NODE_READY_CONFIG=worker: {checks: [{name: a, type: weekday}]}"),
			"worker.checks[0].weekday.not: Required value: a day such as Monday"},
		{"a run", run("worker", "KUBE_NODE_READY_CONFIG=worker: {checks: [{name: a, type: weekday, weekday: {not: Never}}]}"), `"reason":"","message":"it is not Never"`},
	} {
		if !strings.Contains(c.got, c.want) {
			t.Errorf("%s: no %q in\n%.3000s", c.of, c.want, c.got)
		}
	}
}
