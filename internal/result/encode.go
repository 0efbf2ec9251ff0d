package result

import (
	"cmp"
	"encoding/json"
	"slices"
	"sort"
	"unicode/utf8"
)

// messageCuts are the lengths, in bytes, that messages are cut to, one after the other, until
// a report fits: a cut message still says something, a dropped check says nothing.
var messageCuts = []int{1024, 512, 256, 128, 64, 32, 0}

// maxNodeBytes is the longest legal node name (a DNS-1123 subdomain).
const maxNodeBytes = 253

// Encode renders the report as JSON of at most MaxBytes, always valid JSON and valid UTF-8. Failures come first, then
// inconclusive checks. If the report is too large, messages are cut first, those of failures last. Then checks are
// dropped from the end, and counted in Omitted.
func (r Report) Encode() []byte {
	r.Version = Version
	r.Node = Clip(clean(r.Node), maxNodeBytes)
	checks := make([]Check, len(r.Checks))
	for i, c := range r.Checks {
		checks[i] = c.sanitised()
	}
	r.Checks = checks
	r.Sort()

	if b := r.marshal(); len(b) <= MaxBytes {
		return b
	}
	for _, n := range messageCuts {
		for i := range r.Checks {
			if r.Checks[i].Outcome.rank() > Inconclusive.rank() {
				r.Checks[i].Message = Clip(r.Checks[i].Message, n)
			}
		}
		if b := r.marshal(); len(b) <= MaxBytes {
			return b
		}
		// Failures keep twice what the others keep.
		for i := range r.Checks {
			r.Checks[i].Message = Clip(r.Checks[i].Message, 2*n)
		}
		if b := r.marshal(); len(b) <= MaxBytes {
			return b
		}
	}
	all := r.Checks
	dropped := sort.Search(len(all), func(n int) bool { return len(r.without(all, n).marshal()) <= MaxBytes })
	return r.without(all, dropped).marshal()
}

// without is the report with the last n of all its checks left out.
func (r Report) without(all []Check, n int) Report {
	r.Checks = all[:len(all)-n]
	r.Omitted += n
	return r
}

// Sort puts failures first, then inconclusive checks, warnings, skipped and passed ones, each
// in the order they had.
func (r Report) Sort() {
	slices.SortStableFunc(r.Checks, func(a, b Check) int {
		return cmp.Compare(a.Outcome.rank(), b.Outcome.rank())
	})
}

// ExitCode is the exit code that goes with the report's outcome.
func (r Report) ExitCode() int {
	if code, ok := exitCodes[r.Outcome]; ok {
		return code
	}
	return ExitInternal
}

// rank orders outcomes in a report: passed and unknown ones are last.
func (o Outcome) rank() int {
	order := []Outcome{Failed, Inconclusive, Warning, Skipped}
	if i := slices.Index(order, o); i >= 0 {
		return i
	}
	return len(order)
}

func (r Report) marshal() []byte {
	if r.Checks == nil {
		r.Checks = []Check{} // [] and not null, for readers that are not written in Go
	}
	b, err := json.Marshal(r)
	if err != nil {
		// Strings and integers only: Marshal has nothing to refuse.
		panic("result: " + err.Error())
	}
	return b
}

// sanitised is the check with every string fit to be shown and to be encoded.
func (c Check) sanitised() Check {
	c.Name = Clip(clean(c.Name), maxNameBytes)
	c.Type = Clip(clean(c.Type), maxNameBytes)
	c.Severity = Clip(clean(c.Severity), maxNameBytes)
	c.Reason = Clip(clean(c.Reason), maxNameBytes)
	c.Message = Sanitise(Clip(c.Message, MaxBytes))
	return c
}

// Clip cuts s to at most n bytes, between characters, and shows that it did.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const ellipsis = "…"
	if n < len(ellipsis) {
		return ""
	}
	cut := n - len(ellipsis)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + ellipsis
}
