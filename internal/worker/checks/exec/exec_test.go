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
		{"cannot tell", shell("exit 2"), check.ReasonUnknown, "exited with 2, which is inconclusive"},
		{"any other code", shell("exit 127"), check.ReasonUnknown, "exited with 127"},
		{"a signal", shell("kill -SEGV $$"), check.ReasonUnknown, "ended by signal segmentation fault"},
		{"hangs", shell("echo waiting; sleep 60"), check.ReasonTimeout, "was killed: waiting"},
		{"children hang", shell("sleep 60 & echo left; exit 0"), check.NoReason, "exited with 0: left"},
		{"output is capped", noise, check.NoReason, ": noise\nnoise\nnoise\nno…"},
		{"no such program", Settings{Command: []string{"/no/such/program"}}, check.ReasonUnknown, "the worker's container has no such program"},
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
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestNothingIsLeftRunning(t *testing.T) {
	file := filepath.Join(t.TempDir(), "alive")
	// The grandchildren would write after the check has ended.
	for _, c := range []struct {
		script  string
		timeout time.Duration
		reason  check.Reason
	}{
		{"sleep 60", 500 * time.Millisecond, check.ReasonTimeout},
		{"exit 0", 20 * time.Second, check.NoReason},
	} {
		s := shell("(sleep 1; touch " + file + ") >/dev/null 2>&1 & " + c.script)
		ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
		if f := s.New(environment.Pod{})(ctx); f.Reason != c.reason {
			t.Errorf("%s: got %+v", c.script, f)
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
	time.AfterFunc(300*time.Millisecond, cancel)
	if f := s.New(environment.Pod{})(ctx); f.Reason != check.ReasonInterrupted {
		t.Errorf("got %+v", f)
	}
}

func TestResultFiles(t *testing.T) {
	for content, want := range map[string]check.Finding{
		"0\nall GPUs answer\n": {Message: ": all GPUs answer"},
		"0":                    {Message: "exited with 0"},
		" 1 \r\nGPU 3 is lost": {Reason: check.ReasonCommandFailed, Message: ": GPU 3 is lost"},
		"2\n":                  {Reason: check.ReasonUnknown, Message: "which is inconclusive"},
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
		if err == nil && (code < 0 || code > 255 || len(output.String()) > most+len("…")) {
			t.Errorf("code %d, %d bytes", code, len(output.String()))
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

// healthValidation are the severities of NVIDIA Health Validation.
func healthValidation(script string) Settings {
	s := shell(script)
	s.Verdict, s.SeverityField = VerdictJSON, "overall_severity"
	s.Severities = map[string]string{"PASS": OutcomePassed, "INFO": OutcomePassed, "WARNING": OutcomeWarning,
		"CRITICAL": OutcomeFailed, "UNKNOWN": OutcomeInconclusive, "3": OutcomeFailed}
	return s
}

func TestJSONVerdicts(t *testing.T) {
	diag := func(statuses ...string) Settings {
		var results []string
		for _, s := range statuses {
			results = append(results, `{"results": [{"status": "`+s+`"}]}`)
		}
		s := healthValidation(`echo '{"DCGM Diagnostic": {"test_categories": [{"tests": [` + strings.Join(results, ",") + `]}]}}'`)
		s.SeverityField = "DCGM Diagnostic.test_categories.tests.results.status"
		s.Severities = map[string]string{"Pass": OutcomePassed, "Warn": OutcomeWarning, "Skip": OutcomeInconclusive, "Fail": OutcomeFailed}
		return s
	}
	large := healthValidation(`printf '{"overall_severity": "PASS", "padding": "'; yes x | head -c 1100000 | tr -d '\n'; head -c 1100000 /dev/zero | tr '\0' x; printf '"}'`)
	for _, c := range []struct {
		name     string
		settings Settings
		outcome  check.Outcome
		reason   check.Reason
		says     string
	}{
		{"passes", healthValidation(`echo '{"overall_severity": "PASS"}'`), check.Passed, check.NoReason, "has overall_severity PASS"},
		{"warns", healthValidation(`echo '{"overall_severity": "WARNING"}'`), check.Warned, check.ReasonCommandWarned, "WARNING"},
		{"exit 1 is critical", healthValidation(`echo '{"overall_severity": "CRITICAL"}'; echo Xid 79 >&2; exit 1`),
			check.Failed, check.ReasonCommandFailed, "exited with 1, and its JSON has overall_severity CRITICAL: Xid 79"},
		{"exit 1 is unknown", healthValidation(`echo '{"overall_severity": "UNKNOWN"}'; exit 1`), check.Inconclusive, check.ReasonUnknown, "UNKNOWN"},
		{"exit 0 is critical", healthValidation(`echo '{"overall_severity": "CRITICAL"}'`), check.Failed, check.ReasonCommandFailed, "exited with 0"},
		{"a number", healthValidation(`echo '{"overall_severity": 3}'`), check.Failed, check.ReasonCommandFailed, "overall_severity 3"},
		{"a pass of a command that failed", healthValidation(`echo '{"overall_severity": "PASS"}'; exit 226`),
			check.Inconclusive, check.ReasonUnknown, "exited with 226, although its JSON has overall_severity PASS"},
		{"a warning of a command that failed", healthValidation(`echo '{"overall_severity": "WARNING"}'; exit 2`), check.Inconclusive, check.ReasonUnknown, "although"},
		{"a pass of a command that was killed", healthValidation(`echo '{"overall_severity": "PASS"}'; kill -KILL $$`), check.Inconclusive, check.ReasonUnknown, "signal"},
		{"no output", healthValidation(`echo broken >&2; exit 2`), check.Inconclusive, check.ReasonUnknown, "its JSON is missing: broken"},
		{"no JSON", healthValidation(`echo Successfully ran`), check.Inconclusive, check.ReasonUnknown, "its JSON is invalid"},
		{"half a document", healthValidation(`printf '{"overall_severity": "PASS"'`), check.Inconclusive, check.ReasonUnknown, "its JSON is invalid"},
		{"two documents", healthValidation(`echo '{"overall_severity": "PASS"} {"overall_severity": "CRITICAL"}'`),
			check.Inconclusive, check.ReasonUnknown, "followed by something else"},
		{"more than is read", large, check.Inconclusive, check.ReasonUnknown, "has more than 1048576 bytes"},
		{"another field", healthValidation(`echo '{"severity": "PASS"}'`), check.Inconclusive, check.ReasonUnknown, `no key "overall_severity"`},
		{"a field of nothing", healthValidation(`echo '"PASS"'`), check.Inconclusive, check.ReasonUnknown, "no mapping"},
		{"null", healthValidation(`echo '{"overall_severity": null}'`), check.Inconclusive, check.ReasonUnknown, "is null"},
		{"a mapping", healthValidation(`echo '{"overall_severity": {}}'`), check.Inconclusive, check.ReasonUnknown, "is a mapping"},
		{"an empty list", healthValidation(`echo '{"overall_severity": []}'`), check.Inconclusive, check.ReasonUnknown, "empty list"},
		{"a severity that is not in the map", healthValidation(`echo '{"overall_severity": "pass"}'`),
			check.Inconclusive, check.ReasonUnknown, "has overall_severity pass, which is not in severities"},
		{"all of a list", diag("Pass", "Pass"), check.Passed, check.NoReason, "status Pass"},
		{"the worst of a list", diag("Pass", "Fail", "Skip", "Warn"), check.Failed, check.ReasonCommandFailed, "status Fail"},
		{"a skip in a list", diag("Pass", "Skip", "Warn"), check.Inconclusive, check.ReasonUnknown, "status Skip"},
		{"an unknown status in a list", diag("Fail", "Other"), check.Inconclusive, check.ReasonUnknown, "not in severities"},
		{"no tests", diag(), check.Inconclusive, check.ReasonUnknown, "empty list"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := c.settings.New(environment.Pod{})(t.Context())
			if f.Outcome != c.outcome || f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
				t.Errorf("got %+v, want %v, %v with %q", f, c.outcome, c.reason, c.says)
			}
		})
	}
}

// onUnknown is about a verdict that is not there; a severity that is mapped to inconclusive stays so.
func TestOnUnknownOfJSONVerdicts(t *testing.T) {
	for script, want := range map[string]check.Outcome{`echo '{'`: check.Warned, `echo '{"overall_severity": "UNKNOWN"}'`: check.Inconclusive} {
		s := healthValidation(script)
		s.OnUnknown = UnknownWarn
		if f := s.New(environment.Pod{})(t.Context()); f.Outcome != want {
			t.Errorf("%s: got %+v", script, f)
		}
	}
}

func TestJSONInResultFiles(t *testing.T) {
	for content, want := range map[string]check.Finding{
		"0\n{\"overall_severity\": \"PASS\"}\n":   {Message: "exited with 0, and its JSON has overall_severity PASS"},
		"1\n{\"overall_severity\": \"CRITICAL\"}": {Outcome: check.Failed, Reason: check.ReasonCommandFailed, Message: "CRITICAL"},
		"1\n":                              {Outcome: check.Inconclusive, Reason: check.ReasonUnknown, Message: "its JSON is missing"},
		"{\"overall_severity\": \"PASS\"}": {Outcome: check.Inconclusive, Reason: check.ReasonUnknown, Message: "exit code"},
	} {
		path := filepath.Join(t.TempDir(), "result")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		s := healthValidation("")
		s.Command, s.ResultFile = nil, path
		if f := s.New(environment.Pod{})(t.Context()); f.Outcome != want.Outcome || f.Reason != want.Reason || !strings.Contains(f.Message, want.Message) {
			t.Errorf("%q: got %+v, want %+v", content, f, want)
		}
	}
}

// FuzzDocument: whatever a command prints, only a severity that is mapped to it verifies a node, and a message has no end of it.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{`{"a": {"b": "PASS"}}`, `{"a": [{"b": ["PASS", "FAIL"]}]}`, `[]`, `{"a": {"b": 1e999}}`, "{"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := Settings{Verdict: VerdictJSON, SeverityField: "a.b", Severities: map[string]string{"PASS": OutcomePassed}}
		finding := s.evaluate("x", 0, &capped{most: maxDocument, kept: data}, &capped{})
		if finding.Passed() && !strings.Contains(string(data), "PASS") && !strings.Contains(string(data), `\u`) || len(finding.Message) > 4096 {
			t.Errorf("got %+v", finding)
		}
	})
}
