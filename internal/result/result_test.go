package result_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

func checkOf(name string, o result.Outcome, message string) result.Check {
	return result.Check{Name: name, Type: "dns", Severity: "required", Outcome: o, DurationMs: 5, Reason: "Timeout", Message: message}
}

func TestEncodeAndParse(t *testing.T) {
	r := result.Report{Node: "node-a", Outcome: result.Failed, DurationMs: 12, Checks: []result.Check{
		checkOf("passes", result.Passed, "fine"),
		checkOf("skipped", result.Skipped, "left out"),
		checkOf("warns", result.Warning, "slow"),
		checkOf("cannot tell", result.Inconclusive, "503"),
		checkOf("fails", result.Failed, `"10.0.0.1" did not answer`),
	}}
	encoded := r.Encode()
	got, err := result.Parse(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if got.Version != result.Version || got.Node != "node-a" || got.Outcome != result.Failed || got.DurationMs != 12 || got.Omitted != 0 {
		t.Errorf("got %+v", got)
	}
	var order []string
	for _, c := range got.Checks {
		order = append(order, c.Name)
	}
	if want := "fails cannot tell warns skipped passes"; strings.Join(order, " ") != want {
		t.Errorf("order %v, want %s", order, want)
	}
	if f := got.Checks[0]; f.Message != `"10.0.0.1" did not answer` {
		t.Errorf("first failure %+v", f)
	}
	if r.Checks[0].Name != "passes" {
		t.Error("Encode reordered its receiver's checks")
	}
	// Readers in other languages rely on these names.
	want := `{"version":1,"node":"node-a","outcome":"failed","durationMs":12,"checks":[{"name":"fails","type":"dns","severity":"required","outcome":"failed","durationMs":5,"reason":"Timeout","message":"\"10.0.0.1\" did not answer"}`
	if !strings.HasPrefix(string(encoded), want) {
		t.Errorf("encoded as %s", encoded)
	}
	if empty := (result.Report{Outcome: result.Passed}).Encode(); !strings.Contains(string(empty), `"checks":[]`) {
		t.Errorf("a report without checks is encoded as %s", empty)
	}
}

func TestEncodeFits(t *testing.T) {
	for _, c := range []struct {
		name     string
		failures int
		passes   int
		message  string
		check    func(t *testing.T, r result.Report)
	}{
		{"one enormous failure", 1, 0, strings.Repeat("ü", 10_000), func(t *testing.T, r result.Report) {
			if m := r.Checks[0].Message; len(m) < 1000 || !strings.HasSuffix(m, "ü…") {
				t.Errorf("message of %d bytes, ends with %q", len(m), m[len(m)-5:])
			}
		}},
		{"failures keep more than passes", 1, 5, strings.Repeat("x", 3000), func(t *testing.T, r result.Report) {
			if len(r.Checks) != 6 || len(r.Checks[0].Message) <= len(r.Checks[1].Message) {
				t.Errorf("got %+v", r)
			}
		}},
		{"control characters, six bytes each in JSON", 5, 5, strings.Repeat("\x01<", 900), nil},
		{"more checks than fit", 3, 300, "fine", func(t *testing.T, r result.Report) {
			if r.Omitted == 0 || r.Omitted+len(r.Checks) != 303 || r.Checks[2].Outcome != result.Failed {
				t.Errorf("%d checks and %d omitted", len(r.Checks), r.Omitted)
			}
		}},
		{"more failures than fit", 300, 300, "broken", func(t *testing.T, r result.Report) {
			if r.Omitted+len(r.Checks) != 600 || len(r.Checks) < 20 {
				t.Errorf("%d checks and %d omitted", len(r.Checks), r.Omitted)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := result.Report{Node: "n", Outcome: result.Failed}
			for i := range c.failures {
				r.Checks = append(r.Checks, checkOf(fmt.Sprintf("fails-%d", i), result.Failed, c.message))
			}
			for i := range c.passes {
				r.Checks = append(r.Checks, checkOf(fmt.Sprintf("passes-%d", i), result.Passed, c.message))
			}
			encoded := r.Encode()
			if len(encoded) > result.MaxBytes || !utf8.Valid(encoded) || !json.Valid(encoded) {
				t.Fatalf("%d bytes, valid UTF-8 %t, valid JSON %t", len(encoded), utf8.Valid(encoded), json.Valid(encoded))
			}
			got, err := result.Parse(encoded)
			if err != nil {
				t.Fatal(err)
			}
			if c.check != nil {
				c.check(t, got)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	good := `{"version":1,"node":"n","outcome":"failed","durationMs":1,"checks":[{"name":"a","type":"dns","severity":"required","outcome":"failed","durationMs":1,"reason":"R","message":"m"}]}`
	if _, err := result.Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, input, says string }{
		{"nothing", " \n", "no report"},
		{"no JSON", "panic: oops", "not valid JSON"},
		{"cut JSON", good[:100], "not valid JSON"},
		{"cut before the checks", good[:50], "not valid JSON"},
		{"broken after a check", strings.Replace(good, "}]}", "},{]}", 1), "not valid JSON"},
		{"too long", good + strings.Repeat(" ", result.MaxBytes), "bytes, at most 4096"},
		{"another version", strings.Replace(good, `"version":1`, `"version":2`, 1), "version 2"},
		{"no version", strings.Replace(good, `"version":1,`, ``, 1), "version 0"},
		{"unknown outcome", strings.Replace(good, `"outcome":"failed","durationMs":1,"checks"`, `"outcome":"fine","durationMs":1,"checks"`, 1), `unknown outcome "fine"`},
		{"outcome of a check only", strings.Replace(good, `"outcome":"failed","durationMs":1,"checks"`, `"outcome":"skipped","durationMs":1,"checks"`, 1), `unknown outcome "skipped"`},
		{"unknown outcome of a check", strings.Replace(good, `"outcome":"failed","durationMs":1,"reason"`, `"outcome":"\u001b[2J","durationMs":1,"reason"`, 1), `checks[0]: unknown outcome "[2J"`},
		{"unknown severity", strings.Replace(good, "required", "fatal", 1), `unknown severity "fatal"`},
		{"negative duration", strings.Replace(good, `"durationMs":1,"checks"`, `"durationMs":-1,"checks"`, 1), "durationMs -1"},
		{"overflowing duration", strings.Replace(good, `"durationMs":1,"reason"`, `"durationMs":99999999999,"reason"`, 1), "durationMs 99999999999"},
		{"long name", strings.Replace(good, `"name":"a"`, `"name":"`+strings.Repeat("a", 200)+`"`, 1), "name has 200 bytes"},
		{"no name", strings.Replace(good, `"name":"a"`, `"name":""`, 1), "name is empty"},
		{"long node", strings.Replace(good, `"node":"n"`, `"node":"`+strings.Repeat("n", 300)+`"`, 1), "node name has 300 bytes"},
		{"negative count", strings.Replace(good, `"checks"`, `"omitted":-1,"checks"`, 1), "omitted"},
		{"too many checks", `{"version":1,"outcome":"passed","checks":[` + strings.Repeat("{},", 300) + `{}]}`, "301 checks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := result.Parse([]byte(c.input))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error with %q", err, c.says)
			}
		})
	}
	if _, err := result.Parse(nil); !errors.Is(err, result.ErrNoReport) {
		t.Errorf("got %v", err)
	}
}

// A kubelet cuts what a container says to its share of the pod's 12 KiB, wherever that is.
func TestParseReadsUpToTheCut(t *testing.T) {
	r := result.Report{Node: "n", Outcome: result.Failed, DurationMs: 7}
	for i := range 9 {
		r.Checks = append(r.Checks, checkOf(fmt.Sprintf("fails-%d", i), result.Failed, strings.Repeat(`"checks":[`, 100)))
	}
	encoded := r.Encode()
	for size := 0; size < len(encoded); size += 13 {
		got, err := result.Parse(encoded[:size])
		switch {
		case err != nil && size > 200:
			t.Fatalf("%d bytes: %v", size, err)
		case err == nil && (got.Node != "n" || got.Outcome != result.Failed || got.Omitted != 1 || len(got.Checks) == 0 ||
			got.Checks[0].Name != "fails-0" || got.Checks[0].Message == ""):
			t.Fatalf("%d bytes: got %+v", size, got)
		}
	}
}

func TestParseMakesSafe(t *testing.T) {
	got, err := result.Parse([]byte(`{"version":1,"node":"n\u0000x","outcome":"passed","future":{"a":1},"checks":[
		{"name":"a\n","type":"dns","severity":"warning","outcome":"passed","more":true,"message":"\u001b[31mred\u202e\r\nBearer abcdefghijkl"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got.Node != "n x" || got.Checks[0].Name != "a" || got.Checks[0].Message != "[31mred Bearer [redacted]" {
		t.Errorf("got %+v", got)
	}
}

func TestSanitise(t *testing.T) {
	const token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl"
	for in, want := range map[string]string{
		"plain text":                        "plain text",
		"https://user:secret@host/path":     "https://[redacted]@host/path",
		"Get \"http://u@h/\": EOF":          "Get \"http://[redacted]@h/\": EOF",
		"Authorization: Bearer abc.def":     "Authorization: [redacted]",
		"authorization=Basic dXNlcjpwYXNz,": "authorization=[redacted],",
		"sent bearer 0123456789abcdef":      "sent bearer [redacted]",
		"token " + token + " refused":       "token [redacted] refused",
		"/v2/?token=s3cret&x=1":             "/v2/?token=[redacted]&x=1",
		"password=hunter2 wrong":            "password=[redacted] wrong",
		"two\nlines\tand\x07bell":           "two lines and bell",
		"broken \xff\xfe bytes":             "broken ?? bytes",
		"10.244.1.3:53 (coredns-abc) did":   "10.244.1.3:53 (coredns-abc) did",
		"the API server's token is refused": "the API server's token is refused",
	} {
		if got := result.Sanitise(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestExitCode(t *testing.T) {
	for o, want := range map[result.Outcome]int{result.Passed: 0, result.Failed: 1, result.ConfigError: 2, result.ClientError: 3, result.InternalError: 10} {
		if got := (result.Report{Outcome: o}).ExitCode(); got != want {
			t.Errorf("%s exits with %d, want %d", o, got, want)
		}
	}
}

// FuzzParse: whatever a termination message holds, what Parse lets through can be shown,
// and encodes to a report that Parse takes again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"node":"n","outcome":"failed","durationMs":1,"checks":[{"name":"a","type":"dns","severity":"required","outcome":"failed","durationMs":1,"reason":"R","message":"m\u0000"}]}`))
	f.Add([]byte(`{"version":1,"outcome":"passed","checks":null,"omitted":3}`))
	f.Add([]byte(`{"version":1,"outcome":"passed","checks":[{"name":"\ud800","severity":"warning","outcome":"skipped"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := result.Parse(data)
		if err != nil {
			return
		}
		for _, c := range r.Checks {
			if c.Message != result.Sanitise(c.Message) && len(c.Message) < 2000 {
				t.Errorf("unsafe message %q", c.Message)
			}
		}
		encoded := r.Encode()
		if len(encoded) > result.MaxBytes {
			t.Errorf("%d bytes", len(encoded))
		}
		if _, err := result.Parse(encoded); err != nil {
			t.Errorf("encoded as %s: %v", encoded, err)
		}
	})
}

// FuzzEncode: whatever a check says, the report is valid and fits.
func FuzzEncode(f *testing.F) {
	f.Add("name", "message", 3)
	f.Add("\xff", strings.Repeat("\x00\u2028", 300), 40)
	f.Fuzz(func(t *testing.T, name, message string, n int) {
		r := result.Report{Node: name, Outcome: result.Failed}
		for i := range min(max(n, 0), 40) {
			r.Checks = append(r.Checks, checkOf(name+"x", []result.Outcome{result.Failed, result.Passed}[i%2], message))
		}
		encoded := r.Encode()
		if len(encoded) > result.MaxBytes || !json.Valid(encoded) || !utf8.Valid(encoded) {
			t.Fatalf("%d bytes: %q", len(encoded), encoded)
		}
		if _, err := result.Parse(encoded); err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
	})
}

func TestInconclusive(t *testing.T) {
	r := result.Report{Outcome: result.Inconclusive, Checks: []result.Check{checkOf("passes", result.Passed, ""), checkOf("api", result.Inconclusive, "503")}}
	if r.ExitCode() != result.ExitInconclusive {
		t.Errorf("exit code %d", r.ExitCode())
	}
	if got, err := result.Parse(r.Encode()); err != nil || got.Outcome != result.Inconclusive || got.Checks[0].Name != "api" {
		t.Errorf("got %+v, %v", got, err)
	}
}
