package missing

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// envCase has the test binary run one case of this test instead of its tests.
const envCase = "KUBE_NODE_READY_TEST_MISSING"

var cases = map[string]func(*testing.T){
	"tool":     func(t *testing.T) { Built(t, errors.New(`kube-apiserver is not built: run "make tools"`)) },
	"built":    func(t *testing.T) { Built(t, nil) },
	"machine":  func(t *testing.T) { Skip(t, "IPv6", "enable it") },
	"request":  func(t *testing.T) { Request(t, "PLANTED_OR_NOT", "make chaos-planted") },
	"demanded": func(t *testing.T) { t.Setenv("PLANTED_OR_NOT", ""); Request(t, "PLANTED_OR_NOT", "make chaos-planted") },
	"short":    func(t *testing.T) { Short(t, "it takes long") },
	"root":     func(t *testing.T) { Root(t, "mounting") },
}

func TestMain(m *testing.M) { os.Exit(Code(m.Run())) }

// TestCase is what TestRule runs.
func TestCase(t *testing.T) {
	if do := cases[os.Getenv(envCase)]; do != nil {
		do(t)
	}
}

// What a test does, on a developer's machine, with -short, and in continuous integration; and the line that says why.
func TestRule(t *testing.T) {
	const passed, skipped, failed, red = "passed", "skipped", "failed", "skipped, and the package fails"
	root := skipped
	if os.Geteuid() == 0 {
		root = passed
	}
	for _, c := range []struct {
		name                 string
		locally, short, inCI string
		line                 string
	}{
		{"tool", red, skipped, failed, `kube-apiserver is not built: run "make tools"`},
		{"built", passed, passed, passed, ""},
		{"machine", skipped, skipped, failed, "missing: IPv6: enable it"},
		{"request", skipped, skipped, skipped, "it runs on request: make chaos-planted sets PLANTED_OR_NOT"},
		{"demanded", passed, passed, passed, ""},
		{"short", passed, skipped, passed, "left out by -short: it takes long"},
		{"root", root, root, root, "missing: root, for mounting: run the test as root"},
	} {
		for _, run := range []struct {
			how, want string
			short     bool
			ci        string
		}{
			{"locally", c.locally, false, ""}, {"with CI=false", c.locally, false, "false"}, {"with -short", c.short, true, ""},
			{"with CI=true", c.inCI, false, "true"}, {"with -short and CI=true", c.short, true, "true"},
		} {
			want := run.want
			if run.short && run.ci == "true" && c.name == "machine" {
				want = failed // -short is not the reason
			}
			//nolint:gosec // it is this program
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCase$", "-test.v", fmt.Sprintf("-test.short=%v", run.short))
			cmd.Env = append(os.Environ(), envCase+"="+c.name, EnvCI+"="+run.ci)
			out, err := cmd.CombinedOutput()
			got := map[bool]string{true: passed, false: failed}[err == nil]
			if strings.Contains(string(out), "--- SKIP") {
				got = map[bool]string{true: skipped, false: red}[err == nil]
			}
			if got != want || want != passed && !strings.Contains(string(out), c.line) {
				t.Errorf("%s, %s: %s, want %s with %q:\n%s", c.name, run.how, got, want, c.line, out)
			}
			// Of a package that fails go test shows this without -v.
			if n := strings.Count(string(out), "\nmissing: "); want == red && n != 1 {
				t.Errorf("%s, %s: %d lines at the end:\n%s", c.name, run.how, n, out)
			}
		}
	}
}
