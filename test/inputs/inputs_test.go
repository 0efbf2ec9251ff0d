package inputs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A result is given again as long as nothing changed that it was said to depend on.
func TestATestRunsAgainOnceItsInputsChanged(t *testing.T) {
	dir := t.TempDir()
	tracker, err := os.ReadFile("inputs.go")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"go.mod":                "module example.com/m\n\ngo 1.25\n",
		"inputs/inputs.go":      string(tracker),
		"chart/.hidden/b.txt":   "b",
		"chart/templates/a.txt": "a",
		"other/c.txt":           "c",
		"suite/suite_test.go": `package suite
import ("testing"; "example.com/m/inputs")
func TestIt(t *testing.T) { inputs.Track(t, "../chart") }
`,
	} {
		write(t, filepath.Join(dir, name), content, time.Hour)
	}
	cached := func() bool {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", "test", "./suite")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.Contains(string(out), "(cached)")
	}
	if cached() {
		t.Error("cached before it ran")
	}
	write(t, filepath.Join(dir, "chart/.hidden/b.txt"), "B", time.Minute)
	write(t, filepath.Join(dir, "other/c.txt"), "C", time.Minute)
	if !cached() {
		t.Error("it ran again although nothing changed")
	}
	write(t, filepath.Join(dir, "chart/templates/a.txt"), "A", time.Minute)
	if cached() {
		t.Error("it did not run again after a change")
	}
	write(t, filepath.Join(dir, "chart/templates/d.txt"), "D", time.Minute)
	if cached() {
		t.Error("it did not run again after a file was added")
	}
}

func TestTrackWhatIsNotThere(t *testing.T) {
	ended := &refusing{TB: t}
	func() {
		defer func() { _ = recover() }()
		Track(ended, "absent")
	}()
	if !ended.fatal {
		t.Error("nothing is said of a folder that is not there")
	}
}

// refusing takes down that a test was ended.
type refusing struct {
	testing.TB
	fatal bool
}

func (r *refusing) Fatal(...any) {
	r.fatal = true
	panic("the test ends")
}

// write writes a file as if some time ago: go test keeps no result beside what changed a moment ago.
func write(t *testing.T, path, content string, ago time.Duration) {
	t.Helper()
	changed := []string{path} // and each folder that gets one more entry
	for name := path; ; {
		if _, err := os.Stat(name); err == nil {
			break
		}
		name = filepath.Dir(name)
		changed = append(changed, name)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-ago)
	for _, name := range changed {
		if err := os.Chtimes(name, then, then); err != nil {
			t.Fatal(err)
		}
	}
}
