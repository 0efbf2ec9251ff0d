package kubectlplugin

import "testing"

func TestWhyRulesAreNotServed(t *testing.T) {
	for state, want := range map[string]string{
		"":          "",
		"serving: ": "",
		"absent: the API server has no NodeReadinessRules": "",
		"standing-back: Lease a/b is held by c: at work":   "NodeReadinessRules are not served (standing-back): Lease a/b is held by c: at work",
	} {
		if got := rulesTrouble(state); got != want {
			t.Errorf("%q: %q, want %q", state, got, want)
		}
	}
}
