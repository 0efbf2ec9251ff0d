package decide

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

func TestSummaryOf(t *testing.T) {
	for name, tc := range map[string]struct {
		in                     Input
		unhealthy, control, ok bool
	}{
		"new":                      {given(), false, false, true},
		"verified":                 {verified(), false, true, true},
		"verified, not ready":      {verified(func(in *Input) { in.Node.Ready = false }), false, false, true},
		"verified, tainted again":  {verified(gated), false, false, true},
		"verified, label gone":     {verified(unlabelled), false, false, true},
		"verified, skipped":        {verified(skipped), false, false, false},
		"verified, not selected":   {verified(unselected), false, false, false},
		"failed":                   {failing(1), true, false, true},
		"verified, leaving":        {verified(leaving), false, false, false},
		"failed, leaving":          {failing(1, leaving), true, false, false},
		"exhausted, leaving":       {failing(5, leaving), true, false, false},
		"tainted, leaving":         {given(leaving), false, false, false},
		"failed, kubelet gone":     {failing(1, lost), true, false, true},
		"failed, now inconclusive": {failing(1, inconclusiveSince), true, false, true},
		"inconclusive":             {puzzling(1), false, false, true},
		"passed after failures":    {verified(func(in *Input) { in.Node.Record.Attempts = 2 }), false, true, true},
		"a released control plane": {verified(controlplane), false, true, false},
	} {
		m := SummaryOf(tc.in)
		if m.Excluded == tc.ok || m.Name != "n" || tc.ok && (m.Unhealthy != tc.unhealthy || m.CanHostProbe != tc.control) || m.RemediationIntended {
			t.Errorf("%s: %+v", name, m)
		}
	}
	m := SummaryOf(verified(managed, intended, func(in *Input) { in.Profile.Profile, in.Node.Created, in.Node.Zone = "gpu", now, "z" }))
	// It is leaving because of the controller's own action, so it counts.
	for name, in := range map[string]Input{
		"deleted": failing(5, leaving, intended), "a repairer acts on it": failing(5, leaving, carrying(required)),
	} {
		if m := SummaryOf(in); m.Excluded || !m.Unhealthy || !m.RemediationIntended {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if !m.RemediationIntended || m.Zone != "z" || m.Pool != "pool" || m.Profile != "gpu" || m.UID != "u1" || m.BootID != "b1" || !m.Created.Equal(now) {
		t.Errorf("%+v", m)
	}
}

// maxUnhealthy may be a percentage. Deletions do not shrink the number that it is a percentage of, and the replacements
// of deleted nodes do not enlarge it.
func TestDeletionsDoNotChangeTheDenominator(t *testing.T) {
	born := func(at ...time.Duration) []NodeSummary {
		fleet := []NodeSummary{self("pool")}
		fleet[0].Created = now.Add(-24 * time.Hour)
		for _, d := range at {
			fleet = append(fleet, NodeSummary{Name: d.String(), UID: d.String(), Pool: "pool", Created: now.Add(-d)})
		}
		return fleet
	}
	const old = 24 * time.Hour
	gone := func(at ...time.Duration) []ledger.Entry {
		var out []ledger.Entry
		for _, d := range at {
			out = append(out, ledger.Entry{Time: metav1.NewTime(now.Add(-d)), UID: "gone" + d.String(), Pool: "pool"})
		}
		return out
	}
	for name, tc := range map[string]struct {
		fleet      []NodeSummary
		deletions  []ledger.Entry
		bad, total int
	}{
		"none was deleted":                {born(old, old, old), nil, 1, 4},
		"one was, and is not replaced":    {born(old, old), gone(10 * time.Minute), 2, 4},
		"one was, and is replaced":        {born(old, old, 5*time.Minute), gone(10 * time.Minute), 2, 4},
		"two were, one is replaced":       {born(old, 5*time.Minute), gone(10*time.Minute, 20*time.Minute), 3, 4},
		"two were, both are replaced":     {born(old, 5*time.Minute, 15*time.Minute), gone(10*time.Minute, 20*time.Minute), 3, 4},
		"a node of before replaces none":  {born(old, old, 15*time.Minute), gone(10 * time.Minute), 2, 5},
		"a pool that grew":                {born(old, old, 5*time.Minute, 4*time.Minute), gone(10 * time.Minute), 2, 5},
		"deleted before the window":       {born(old, old), gone(time.Hour), 1, 3},
		"it is still on its way out":      {born(old, old), []ledger.Entry{{Time: metav1.NewTime(now), UID: "24h0m0s", Pool: "pool"}}, 1, 3},
		"of another pool":                 {born(old), []ledger.Entry{{Time: metav1.NewTime(now), UID: "x", Pool: "other"}}, 1, 2},
		"a whole pool, deleted in a row":  {born(), gone(time.Minute, 2*time.Minute, 3*time.Minute), 4, 4},
		"a ledger of a clock a bit ahead": {born(old), gone(-time.Minute), 2, 3},
	} {
		counts := CountNodes(tc.fleet, tc.deletions, exhausted().Config.NodeManagement.Remediation.Window.Duration, now)
		if got := counts.of(exhausted(), group{pool: "pool"}); got != (count{tc.bad, tc.total}) {
			t.Errorf("%s: %+v, want %d of %d", name, got, tc.bad, tc.total)
		}
	}
}

// The failing node counts as unhealthy, even if the fleet does not show that yet.
func TestTheNodeItselfIsUnhealthy(t *testing.T) {
	fleet := append(healthyNodes(3, "pool"), NodeSummary{Name: "n", UID: "u1", Pool: "pool"})
	for g := range map[group]bool{{}: true, {pool: "pool"}: true} {
		if got := CountNodes(fleet, nil, time.Hour, now).of(exhausted(), g); got != (count{1, 4}) {
			t.Errorf("%+v: %+v", g, got)
		}
	}
}

func TestControl(t *testing.T) {
	in := given(managed)
	for name, tc := range map[string]struct {
		fleet []NodeSummary
		tried map[string]bool
		want  string
	}{
		"none":                  {nil, nil, ""},
		"the pool's own first":  {append(healthyNodes(5, "a"), healthyNodes(1, "pool")...), nil, "pool-m0"},
		"another pool's":        {healthyNodes(1, "a"), nil, "a-m0"},
		"tried":                 {append(healthyNodes(1, "a"), healthyNodes(1, "pool")...), map[string]bool{"pool-m0": true}, "a-m0"},
		"all tried":             {healthyNodes(1, "pool"), map[string]bool{"pool-m0": true}, ""},
		"not well":              {[]NodeSummary{{Name: "m", UID: "m", Pool: "pool"}}, nil, ""},
		"excluded":              {[]NodeSummary{{Name: "m", UID: "m", Pool: "pool", CanHostProbe: true, Excluded: true}}, nil, ""},
		"the node itself":       {[]NodeSummary{{Name: "n", UID: "u1", Pool: "pool", CanHostProbe: true}}, nil, ""},
		"of another profile":    {[]NodeSummary{{Name: "m", UID: "m", Pool: "pool", Profile: "gpu", CanHostProbe: true}}, nil, ""},
		"one that has its name": {[]NodeSummary{{Name: "n", UID: "u0", Pool: "pool", CanHostProbe: true}}, nil, "n"},
	} {
		on, ok := controlNode(in, tc.fleet, 1, tc.tried)
		if on.Name != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: %+v, want %q", name, on, tc.want)
		}
	}
}

func TestGroupsAreLabelValues(t *testing.T) {
	if g := ProbeGroup(given(managed)); len(g) == 0 || len(g) > 63 || g == ProbeGroup(given()) {
		t.Errorf("%q", g)
	}
}

// A node that got a condition and is excluded since was not deleted. One that a repairer deleted was.
func TestExcludedNodeWithAConditionIsNotDeleted(t *testing.T) {
	entry := ledger.Entry{Time: metav1.NewTime(now), UID: "u2", Kind: marks.KindCondition}
	fleet := []NodeSummary{{Name: "n", UID: "u1"}}
	if got := CountNodes(fleet, []ledger.Entry{entry}, time.Hour, now).groups[group{}]; got != (count{1, 2}) {
		t.Errorf("it is gone: %+v", got)
	}
	fleet = append(fleet, NodeSummary{Name: "o", UID: "u2", Excluded: true})
	if got := CountNodes(fleet, []ledger.Entry{entry}, time.Hour, now).groups[group{}]; got != (count{0, 1}) {
		t.Errorf("it is excluded: %+v", got)
	}
}
