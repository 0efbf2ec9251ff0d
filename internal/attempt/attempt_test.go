package attempt

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// Text from elsewhere is printable, on one line, bounded, and without secrets.
func TestText(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"plain":              {"no answer", "no answer"},
		"empty":              {"", ""},
		"lines":              {"a\r\nb\tc", "a b c"},
		"terminal escapes":   {"\x1b[2J\x1b[31mred\x07", "[2J [31mred"},
		"direction override": {"a\u202eb", "a b"},
		"invalid UTF-8":      {"a\xff\xfeb", "a??b"},
		"NUL":                {"a\x00b", "a b"},
		"a password":         {"pull https://user:hunter2@registry/x", "pull https://[redacted]@registry/x"},
		"a token":            {"Authorization: Bearer abcdefghijkl", "Authorization: [redacted]"},
		"at the bound":       {strings.Repeat("x", MaxMessage), strings.Repeat("x", MaxMessage)},
		"over it":            {strings.Repeat("x", MaxMessage+1), strings.Repeat("x", MaxMessage-3) + "…"},
	} {
		if got := Text(tc.in); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestTextIsBoundedWhateverItIs(t *testing.T) {
	for name, s := range map[string]string{
		"ASCII":           strings.Repeat("x", 10<<20),
		"two bytes each":  strings.Repeat("é", 5<<20),
		"four bytes each": strings.Repeat("🙂", 3<<20),
		"control":         strings.Repeat("\x1b", 10<<20),
		"invalid":         strings.Repeat("\xff", 10<<20),
		"cut between":     "x" + strings.Repeat("é", 2*MaxMessage),
		"a large secret":  "token=" + strings.Repeat("s", 10<<20),
	} {
		got := Text(s)
		if len(got) > MaxMessage || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.Contains(got, "sss") {
			t.Errorf("%s: %d bytes, %.20q", name, len(got), got)
		}
		if Text(got) != got {
			t.Errorf("%s: changed the second time", name)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("x")
	f.Add(strings.Repeat("é", MaxMessage))
	f.Add("password=\"a\xffb\u2028c\"" + strings.Repeat("\u202e", MaxMessage))
	f.Fuzz(func(t *testing.T, s string) {
		if got := Text(s); len(got) > MaxMessage || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x00\x1b") {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	})
}

// A reason is one word in upper camel case, whatever a report says.
func TestCheckReason(t *testing.T) {
	for in, want := range map[string]string{
		"NXDOMAIN": "NXDOMAIN", "Timeout": "Timeout", "A": "A", "Status503": "Status503", "A" + strings.Repeat("b", 63): "A" + strings.Repeat("b", 63),
		"": ReasonChecksFailed, "timeout": ReasonChecksFailed, "Two words": ReasonChecksFailed, "Timeout\n": ReasonChecksFailed, "Ünlaut": ReasonChecksFailed,
		"<script>": ReasonChecksFailed, "A" + strings.Repeat("b", 64): ReasonChecksFailed,
	} {
		if got := CheckReason(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestInconclusively(t *testing.T) {
	r := NewInconclusive(ReasonImagePull, strings.Repeat("a\n", 1<<20))
	if r.Outcome != Inconclusive || r.Reason != ReasonImagePull || r.Check != "" || len(r.Message) > MaxMessage || strings.Contains(r.Message, "\n") || r.Duration != 0 || r.Report != nil {
		t.Errorf("%+v", r)
	}
}
