package exec

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
)

func shell(script string) Settings { return Settings{Command: []string{"/bin/sh", "-c", script}} }

func TestCommands(t *testing.T) {
	t.Setenv("KUBE_NODE_READY_CONFIG", "secret")
	t.Setenv("NODE_NAME", "node-a")
	noise := shell("yes noise | head -n 100000")
	noise.MaxOutputBytes = new(int32(20))
	for _, c := range []struct {
		name     string
		settings Settings
		reason   check.Reason
		says     string
	}{
		{"passes", shell("echo ok"), check.NoReason, "exited with 0: ok"},
		{"fails", shell("echo no GPU >&2; exit 1"), check.ReasonCommandFailed, "exited with 1: no GPU"},
		{"cannot tell", shell("exit 2"), check.ReasonUnknown, "exited with 2: it could not tell"},
		{"any other code", shell("exit 127"), check.ReasonUnknown, "exited with 127"},
		{"a signal", shell("kill -SEGV $$"), check.ReasonUnknown, "ended by signal segmentation fault"},
		{"hangs", shell("echo waiting; sleep 60"), check.ReasonTimeout, "was killed: waiting"},
		{"children hang", shell("sleep 60 & echo left; exit 0"), check.NoReason, "exited with 0: left"},
		{"output is capped", noise, check.NoReason, ": noise\nnoise\nnoise\nno…"},
		{"no such program", Settings{Command: []string{"/no/such/program"}}, check.ReasonUnknown, "no such program in the worker's container"},
		{"not in PATH", Settings{Command: []string{"no-such-program"}}, check.ReasonUnknown, "no such program"},
		{"not executable", Settings{Command: []string{"/etc/passwd"}}, check.ReasonUnknown, "may not execute it"},
		{"sees the environment, not the configuration", shell(`echo "$NODE_NAME,$KUBE_NODE_READY_CONFIG"`), check.NoReason, ": node-a,"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			start := time.Now()
			f := c.settings.New(environment.Pod{})(ctx)
			if f.Reason != c.reason || !strings.Contains(f.Message, c.says) || strings.Contains(f.Message, "secret") {
				t.Errorf("got %q: %q, want %q with %q", f.Reason, f.Message, c.reason, c.says)
			}
			if took := time.Since(start); took > 4*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestNothingIsLeftRunning(t *testing.T) {
	file := filepath.Join(t.TempDir(), "alive")
	// The grandchildren would write after the check has ended.
	for script, reason := range map[string]check.Reason{"sleep 60": check.ReasonTimeout, "exit 0": check.NoReason} {
		s := shell("(sleep 1; touch " + file + ") >/dev/null 2>&1 & " + script)
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		if f := s.New(environment.Pod{})(ctx); f.Reason != reason {
			t.Errorf("%s: got %+v", script, f)
		}
		cancel()
	}
	time.Sleep(1300 * time.Millisecond)
	if _, err := os.Stat(file); err == nil {
		t.Error("a child outlived its check")
	}
}

func TestInterruption(t *testing.T) {
	s := shell("sleep 60")
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if f := s.New(environment.Pod{})(ctx); f.Reason != check.ReasonInterrupted {
		t.Errorf("got %+v", f)
	}
}

func TestResultFiles(t *testing.T) {
	for content, want := range map[string]check.Finding{
		"0\nall GPUs answer\n": {Message: ": all GPUs answer"},
		"0":                    {Message: "exited with 0"},
		" 1 \r\nGPU 3 is lost": {Reason: check.ReasonCommandFailed, Message: ": GPU 3 is lost"},
		"2\n":                  {Reason: check.ReasonUnknown, Message: "could not tell"},
		"1\n" + strings.Repeat("x", 600): {Reason: check.ReasonCommandFailed,
			Message: strings.Repeat("x", 512) + "…"},
		"":            {Reason: check.ReasonUnknown, Message: "must begin with a line that holds an exit code"},
		"ok\n":        {Reason: check.ReasonUnknown, Message: "exit code"},
		"-1\n":        {Reason: check.ReasonUnknown, Message: "exit code"},
		"256\n":       {Reason: check.ReasonUnknown, Message: "exit code"},
		"0x1\nhidden": {Reason: check.ReasonUnknown, Message: "exit code"},
	} {
		path := filepath.Join(t.TempDir(), "result")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f := (&Settings{ResultFile: path}).New(environment.Pod{})(context.Background())
		if f.Reason != want.Reason || !strings.Contains(f.Message, want.Message) {
			t.Errorf("%q: got %+v, want %+v", content, f, want)
		}
	}
	if f := (&Settings{ResultFile: "/no/such/file"}).New(environment.Pod{})(context.Background()); f.Reason != check.ReasonUnknown || !strings.Contains(f.Message, "no such file") {
		t.Errorf("got %+v", f)
	}
}

// FuzzParseResult: whatever an init container writes, it is a code from 0 to 255 or an error,
// and the output stays within bounds.
func FuzzParseResult(f *testing.F) {
	f.Add([]byte("1\nbroken"), 10)
	f.Add([]byte("\xff\n\x00"), 0)
	f.Fuzz(func(t *testing.T, data []byte, most int) {
		most = min(max(most, 0), 4096)
		code, output, err := parseResult(data, most)
		if err == nil && (code < 0 || code > 255 || len(output) > most+len("…")) {
			t.Errorf("code %d, %d bytes", code, len(output))
		}
	})
}

// What is neither 0 nor 1 proves nothing about the node, whichever way it came about.
func TestWhatItMeansThatACommandCouldNotTell(t *testing.T) {
	file := filepath.Join(t.TempDir(), "result")
	if err := os.WriteFile(file, []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, settings := range map[string]Settings{
		"2":              shell("exit 2"),
		"9":              shell("exit 9"),
		"127":            shell("exit 127"),
		"a signal":       shell("kill -KILL $$"),
		"not there":      {Command: []string{"/no/such/program"}},
		"a result of 9":  {ResultFile: file},
		"without result": {ResultFile: file + "x"},
	} {
		for onUnknown, want := range map[string]check.Outcome{"": check.Inconclusive, UnknownInconclusive: check.Inconclusive,
			UnknownFail: check.Failed, UnknownWarn: check.Warned} {
			settings.OnUnknown = onUnknown
			if f := settings.New(environment.Pod{})(context.Background()); f.Outcome != want || f.Reason != check.ReasonUnknown {
				t.Errorf("%s, onUnknown %q: got %+v", name, onUnknown, f)
			}
		}
	}
	for code, want := range map[string]check.Outcome{"0": check.Passed, "1": check.Failed} {
		settings := shell("exit " + code)
		settings.OnUnknown = UnknownWarn
		if f := settings.New(environment.Pod{})(context.Background()); f.Outcome != want {
			t.Errorf("exit %s: got %+v", code, f)
		}
	}
}
