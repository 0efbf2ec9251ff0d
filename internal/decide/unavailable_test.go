package decide

import (
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// A node that waits for rules which cannot be served says so where it must be verified or carries a rule's taint; any
// other keeps the condition that it has, and one that may be another installation's is not touched.
func TestAwaitRules(t *testing.T) {
	const why = "Lease default/node-ready-rules is not renewed"
	for name, test := range map[string]struct {
		in    Input
		ruled bool
		want  string
	}{
		"gated":                   {given(), false, marks.ReasonRulesUnavailable},
		"gated and ruled":         {given(), true, marks.ReasonRulesUnavailable},
		"verified":                {verified(), false, ""},
		"verified and ruled":      {verified(), true, marks.ReasonRulesUnavailable},
		"opted out":               {given(skipped), false, ""},
		"opted out and ruled":     {given(skipped), true, marks.ReasonRulesUnavailable},
		"another installation's":  {given(unselected), true, ""},
		"on its way out":          {given(func(in *Input) { in.Node.Deleting = true }), true, ""},
		"past its deadline":       {given(pastDeadline), false, marks.ReasonDeadlineExceeded},
		"never ours, no taint":    {given(ungated), false, ""},
		"rebooted, verified once": {verified(rebootedTo("b2")), false, marks.ReasonRulesUnavailable},
	} {
		p := RulesUnavailable(test.in, test.ruled, why, now)
		got := ""
		if p.Condition != nil {
			if got = p.Condition.Reason; !strings.Contains(p.Condition.Message, why) || len(p.Events) == 0 {
				t.Errorf("%s: %q, %v", name, p.Condition.Message, p.Events)
			}
		}
		if got != test.want || p.Step != StepNone || p.ClearCondition || len(p.Delete) > 0 {
			t.Errorf("%s: %q, want %q: %+v", name, got, test.want, p)
		}
	}
}

// pastDeadline is a node that should have been verified long ago.
func pastDeadline(in *Input) {
	in.Profile.VerificationDeadlineSeconds = 60
	in.Node.Created, in.NeedsVerificationSince = now.Add(-time.Hour), now.Add(-time.Hour)
}

func TestImpeded(t *testing.T) {
	const why = `nodes "n" is forbidden`
	p := RequestRefused(failing(1), why, now)
	if p.Condition == nil || p.Condition.Reason != marks.ReasonVerifying || !strings.Contains(p.Condition.Message, why) {
		t.Errorf("%+v", p.Condition)
	}
	for name, in := range map[string]Input{"verified": verified(), "opted out": given(skipped), "another's": given(unselected)} {
		if p := RequestRefused(in, why, now); p.Condition != nil {
			t.Errorf("%s: %+v", name, p.Condition)
		}
	}
}
