package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds on what Parse accepts. A report of MaxBytes cannot reach most of them; they hold
// where Parse is handed more than a kubelet would keep.
const (
	maxChecks    = 256
	maxNameBytes = 128
	// maxMessageBytes bounds one message; a longer one is cut and not refused.
	maxMessageBytes = 2048
	// maxDurationMs is a day: no worker lives that long, and sums stay far from overflow.
	maxDurationMs = 24 * 60 * 60 * 1000
)

// ErrNoReport is returned by Parse for a termination message that is empty.
var ErrNoReport = errors.New("the worker left no report")

// Parse reads a container's termination message. The message comes from a pod on a node that may be faulty or hostile,
// so nothing in it is trusted. Its size and the number and length of its parts are limited, and control characters are
// removed. An unknown version, outcome or severity is an error. Unknown fields are ignored, so that a newer worker may
// say more. Of a report that was cut off, the checks before the cut are read. Parse never panics.
func Parse(termination []byte) (Report, error) {
	if len(strings.TrimSpace(string(termination))) == 0 {
		return Report{}, ErrNoReport
	}
	if len(termination) > MaxBytes {
		return Report{}, fmt.Errorf("the report has %d bytes, at most %d are allowed", len(termination), MaxBytes)
	}
	var r Report
	if err := json.Unmarshal(termination, &r); err != nil {
		var ok bool
		if r, ok = beforeCut(termination, err); !ok {
			return Report{}, fmt.Errorf("the report is not valid JSON: %w", err)
		}
	}
	if r.Version != Version {
		return Report{}, fmt.Errorf("the report has version %d, this controller reads version %d", r.Version, Version)
	}
	if _, ok := exitCodes[r.Outcome]; !ok {
		return Report{}, fmt.Errorf("the report has an unknown outcome %q", Clip(clean(string(r.Outcome)), maxNameBytes))
	}
	if len(r.Checks) > maxChecks {
		return Report{}, fmt.Errorf("the report has %d checks, at most %d are allowed", len(r.Checks), maxChecks)
	}
	if r.DurationMs < 0 || r.DurationMs > maxDurationMs {
		return Report{}, fmt.Errorf("the report's durationMs %d is not between 0 and %d", r.DurationMs, maxDurationMs)
	}
	if r.Omitted < 0 {
		return Report{}, fmt.Errorf("the report's omitted count %d is negative", r.Omitted)
	}
	if len(r.Node) > maxNodeBytes {
		return Report{}, fmt.Errorf("the report's node name has %d bytes, at most %d are allowed", len(r.Node), maxNodeBytes)
	}
	r.Node = clean(r.Node)
	for i := range r.Checks {
		if err := r.Checks[i].validate(); err != nil {
			return Report{}, fmt.Errorf("checks[%d]: %w", i, err)
		}
	}
	r.Sort()
	return r, nil
}

// beforeCut reads a report that was cut off within its checks: the checks before the cut, and the one whose message is
// cut. There must be one.
func beforeCut(report []byte, err error) (r Report, ok bool) {
	const list = `"checks":[` // as Encode writes it; in a string the quotes are escaped
	syntax, isSyntax := errors.AsType[*json.SyntaxError](err)
	head, rest, _ := bytes.Cut(report, []byte(list))
	if !isSyntax || syntax.Offset < int64(len(report)) ||
		json.Unmarshal(slices.Concat(head, []byte(list+"]}")), &r) != nil {
		return Report{}, false
	}
	for {
		var c Check
		checks := json.NewDecoder(bytes.NewReader(rest))
		if checks.Decode(&c) != nil {
			break
		}
		r.Checks, rest = append(r.Checks, c), bytes.TrimPrefix(rest[checks.InputOffset():], []byte(","))
	}
	for escape := range min(len(`\u0000`), len(rest)) { // the cut may be within one
		var c Check
		if json.Unmarshal(slices.Concat(rest[:len(rest)-escape], []byte(`…"}`)), &c) == nil && c.Message != "" {
			r.Checks = append(r.Checks, c)
			break
		}
	}
	r.Omitted = 1 // at least
	return r, len(r.Checks) > 0
}

// validate refuses what cannot be understood and makes the rest safe to show.
func (c *Check) validate() error {
	switch c.Outcome {
	case Passed, Failed, Inconclusive, Warning, Skipped:
	default:
		return fmt.Errorf("unknown outcome %q", Clip(clean(string(c.Outcome)), maxNameBytes))
	}
	switch c.Severity {
	case "required", "warning":
	default:
		return fmt.Errorf("unknown severity %q", Clip(clean(c.Severity), maxNameBytes))
	}
	if c.DurationMs < 0 || c.DurationMs > maxDurationMs {
		return fmt.Errorf("durationMs %d is not between 0 and %d", c.DurationMs, maxDurationMs)
	}
	for _, s := range []struct {
		name  string
		value *string
	}{{"name", &c.Name}, {"type", &c.Type}, {"reason", &c.Reason}} {
		if len(*s.value) > maxNameBytes {
			return fmt.Errorf("%s has %d bytes, at most %d are allowed", s.name, len(*s.value), maxNameBytes)
		}
		*s.value = clean(*s.value)
	}
	if c.Name == "" {
		return errors.New("name is empty")
	}
	c.Message = Clip(Sanitise(c.Message), maxMessageBytes)
	return nil
}

// clean makes s valid UTF-8 on one line: control and other unprintable characters (terminal
// escapes, line breaks, text direction overrides) become spaces.
func clean(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError {
			return '?'
		}
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// redacted stands where a secret was.
const redacted = "[redacted]"

// secretForms are the forms of secrets in error messages. These are a URL's user-info, an Authorization header or its
// value, a JSON Web Token such as a service account's token, and secrets as parameters.
var secretForms = []struct {
	// Every text of the form contains one of the cues, in lower case. The expression itself takes thirty times as long to
	// find nothing, and the message of a failed node is redacted whenever the node is looked at.
	cues        []string
	pattern     *regexp.Regexp
	replacement string
}{
	{[]string{"://"}, regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s@"']*@`), "${1}" + redacted + "@"},
	{[]string{"authorization"}, regexp.MustCompile(`(?i)\b((?:proxy-)?authorization"?\s*[:=]\s*"?)` +
		`(?:(?:bearer|basic|digest|negotiate)\s+)?[^\s",;]+`), "${1}" + redacted},
	// The beginning of basic, because (?i) lets ſ stand for its s.
	{[]string{"bearer", "ba"}, regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`), "${1} " + redacted},
	{[]string{"eyj"}, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`), redacted},
	{[]string{"="}, regexp.MustCompile(`(?i)\b((?:access_?token|id_?token|token|password|passwd|secret|api_?key|` +
		`client_?secret)"?\s*[=]\s*"?)[^\s&",;]+`), "${1}" + redacted},
}

// Sanitise makes a message fit to be shown: without secrets, valid UTF-8, on one line. Every
// message passes through it on its way into a report, whichever check wrote it and wherever
// the report goes (termination message, standard output, log).
func Sanitise(message string) string { return clean(redact(message)) }

func redact(s string) string {
	lower := strings.ToLower(s)
	for _, form := range secretForms {
		if slices.ContainsFunc(form.cues, func(cue string) bool { return strings.Contains(lower, cue) }) {
			s = form.pattern.ReplaceAllString(s, form.replacement)
		}
	}
	return s
}
