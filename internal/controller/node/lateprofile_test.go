package node_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// The label that selects a node's profile comes after its release (cluster-api#7730). The node is verified again under
// the profile's checks, and stays open. A change of the configuration verifies no node.
func TestLabelsComeAfterTheRelease(t *testing.T) {
	profile := func(name, label, checks string) string {
		return `{"name": "` + name + `", "nodeSelector": {"matchLabels": {"` + label + `": "true"}}` + checks + `}`
	}
	const more = `, "checks": [{"name": "dns", "type": "dns"}]`
	gpu, both := profile("gpu", "gpu", more), profile("same", "same", "")
	for name, tc := range map[string]struct {
		before, after string   // profiles
		labels        []string // patches, each followed by a pass of whatever is due
		exit          int
		workers       int
		profile       string // of the last worker
		says          string // while the last worker runs
	}{
		"late":               {before: gpu, labels: []string{`{"gpu":"true"}`}, workers: 2, profile: "gpu", says: "select profile gpu, and selected no profile"},
		"gone":               {before: gpu, labels: []string{`{"gpu":"true"}`, `{"gpu":null}`}, workers: 3, says: "select no profile, and selected profile gpu"},
		"another label":      {before: gpu, labels: []string{`{"zone":"a"}`}, workers: 1},
		"the same checks":    {before: both, labels: []string{`{"same":"true"}`}, workers: 1},
		"it fails":           {before: gpu, labels: []string{`{"gpu":"true"}`}, exit: 1, workers: 2, profile: "gpu"},
		"a profile is added": {before: both, after: both + "," + profile("late", "kubernetes.io/os", more), labels: []string{`{}`}, workers: 1},
		"its checks change":  {before: gpu, after: profile("gpu", "gpu", ""), labels: []string{`{}`}, workers: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, `{"profiles": [`+tc.before+`]}`)
			n := w.Node("n")
			l := w.Lead()
			passed := func() bool { _, f := w.Get(n.Name); return f.Labelled && !f.Gated }
			if _, ok := l.Until(time.Minute, passed); !ok {
				t.Fatal("not verified")
			}
			if tc.after != "" {
				w.Configure(`{"profiles": [` + tc.after + `]}`)
				l = w.Lead()
			}
			said, last := "", ""
			for _, patch := range tc.labels {
				w.Exit = func(p *corev1.Pod) int {
					last = p.Annotations[workerpod.AnnotationProfile]
					if said = w.ConditionText(n.Name); !strings.Contains(said, "Worker ") {
						return world.Stays
					}
					return tc.exit
				}
				w.Patch(n, `{"metadata":{"labels":`+patch+`}}`)
				l.RunFor(30 * time.Second)
				if !passed() {
					t.Errorf("closed, or without its label: %s", w.ConditionText(n.Name))
				}
			}
			if made := w.Created("verify"); made != tc.workers && (tc.exit == 0 || made < tc.workers) || last != tc.profile {
				t.Errorf("%d workers, the last of profile %q; want %d, %q", made, last, tc.workers, tc.profile)
			}
			if !strings.Contains(said, tc.says) {
				t.Errorf("the condition says %q, want %q", said, tc.says)
			}
			if r := w.Record(n.Name); tc.exit == 0 && (r.LastOutcome != "passed" || len(l.Errs) > 0) {
				t.Errorf("record %+v, errors %v", r, l.Errs)
			}
		})
	}
}
