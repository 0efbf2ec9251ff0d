package rules

import (
	"strings"
	"testing"
	"time"
)

// Rules are left to the node-readiness-controller while its Lease is held and for a minute after that, unless
// rules.takeOver is set.
func TestStandBack(t *testing.T) {
	const held = 15 * time.Second
	now := time.Now()
	for name, tc := range map[string]struct {
		after    time.Duration
		holder   string
		takeOver bool
		want     string // part of why; empty: they are served
	}{
		"held":                        {0, "nrc", false, "is held by nrc"},
		"renewed no more":             {held, "nrc", false, "was held until just now"},
		"for almost a minute":         {held + unheldFor - time.Second, "nrc", false, "was held until just now"},
		"for a minute":                {held + unheldFor, "nrc", false, ""},
		"released":                    {unheldFor - time.Second, "", false, "was held until just now"},
		"released a minute ago":       {unheldFor, "", false, ""},
		"held, and to be taken over":  {0, "nrc", true, ""},
		"a clock that was moved back": {-time.Hour, "nrc", false, "is held by nrc"},
	} {
		s := serving{takeOver: tc.takeOver, nrc: map[string]observedLease{"ns": {holder: tc.holder, changed: now, duration: held}}}
		why := s.standBack(now.Add(tc.after))
		if (why == "") != (tc.want == "") || !strings.Contains(why, tc.want) {
			t.Errorf("%s: %q", name, why)
		}
	}
}
