package metrics

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// FuzzForgedRecord checks that no annotation leaves its node undecided, and that the metrics can always be collected.
// Anybody who may write the Node can forge the record.
func FuzzForgedRecord(f *testing.F) {
	for _, raw := range []string{`{}`, `{"nodeUID":"u"}`, `{"nodeUID":"u","attempts":-1}`, `{"nodeUID":"u","attempts":5,"lastOutcome":"failed","checks":"c"}`,
		`{"nodeUID":"u","attempts":5,"lastOutcome":"failed","checks":"c","bootID":"b","probed":true,"lastTime":"2026-03-01T12:00:00Z"}`,
		`{"nodeUID":"u","remediations":[{"action":-1,"state":"intended"}]}`, `{"nodeUID":"u","held":"\u0000","heldMessage":"x","lastOutcome":"inconclusive"}`,
		`{"nodeUID":"u","deletion":{"kind":"NodeClaim","name":"x","uid":"y","time":"2026-03-01T12:00:00Z"},"lastOutcome":"failed","attempts":5,"checks":"c"}`,
		`{"nodeUID":"u","overdue":{"time":"2026-03-01T12:00:00Z","fault":"node","checks":"c"}}`, `{"nodeUID":"u","sequence":536870912,"shared":536870912,"lastOutcome":"inconclusive"}`,
		`{"nodeUID":"u","durationMs":9223372036854775807}`, `{"nodeUID":"u","lastOutcome":"passed","verifiedTime":"9999-12-31T23:59:59Z","suspicion":{"time":"2026-03-01T12:00:00Z"}}`,
		`{"nodeUID":"u","lastOutcome":"passed","verifiedTime":"2026-03-01T12:00:00Z","takenBack":{"passes":["2026-03-01T12:00:00Z","2026-03-01T11:59:00Z","2026-03-01T12:00:00Z"]}}`,
		`{"nodeUID":"u","lastOutcome":"passed","verifiedTime":"2026-03-01T12:00:00Z","takenBack":{"passes":[` + strings.Repeat(`"9999-03-01T12:00:00Z",`, 15) + `"1970-01-01T00:00:00Z"],"by":"x"}}`,
		`{"nodeUID":"u","lastOutcome":"passed","verifiedTime":"2026-03-01T12:00:00Z","takenBack":{"passes":null}}`,
		`{"nodeUID":"u","cleared":[` + strings.Repeat(`{"time":"2026-03-01T12:00:00Z"},`, 200) + `{"time":"2026-03-01T12:00:00Z"}]}`,
		`{"nodeUID":"u","lastMessage":"` + strings.Repeat("x", 2000) + `"}`} {
		for setting := range byte(4) {
			f.Add(raw, setting)
		}
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, raw string, setting byte) {
		cfg := &config.Config{}
		cfg.SetDefaults()
		cfg.NodeManagement.DeleteFailedNodes = setting&1 != 0
		cfg.Profiles = nil
		if setting&2 != 0 {
			cfg.NodeManagement.Remediation.Action = config.ActionCondition
			cfg.Reconciliation.VerificationDeadlineSeconds = 60
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			Annotations: map[string]string{marks.AnnotationRecord: raw}}}
		n.Spec.Taints = []corev1.Taint{{Key: config.DefaultTaintKey, Effect: corev1.TaintEffectNoSchedule}}
		n.Status.NodeInfo.BootID = "b"
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: cfg.NodeManagement.Remediation.Condition.Type, Status: corev1.ConditionTrue, Reason: marks.ReasonVerificationFailed}}
		in := decide.Input{Config: cfg, Profile: cfg.For(nil), Checks: "c", Selected: true, NeedsVerificationSince: now, Node: marks.Observe(n, cfg.Vocabulary())}

		ask := func(next func(decide.Input, decide.Evidence, time.Time) decide.Plan) decide.Plan {
			in, ev, asked := in, decide.Evidence{}, 0
			loaders := decide.Loaders{}
			for need, load := range map[decide.Need]func(){
				decide.NeedPrerequisites: func() { ev.Unmet = &[]decide.Unmet{} },
				decide.NeedSlot:          func() { ev.Slot = new(true) },
				decide.NeedProbes:        func() { ev.Probes = &[]workerpod.Observation{} },
				decide.NeedFleet:         func() { ev.Fleet = &[]decide.NodeSummary{decide.SummaryOf(in)} },
				decide.NeedFresh:         func() { ev.Fresh = true },
				decide.NeedWarning:       func() { ev.Warning = new("") },
				decide.NeedLedger:        func() { ev.Ledger = &decide.Ledger{} },
				decide.NeedCounts: func() {
					ev.Counts = new(decide.CountNodes([]decide.NodeSummary{decide.SummaryOf(in)}, nil, time.Hour, now))
				},
				decide.NeedOccupants: func() { ev.Workloads = &decide.Workloads{} },
				decide.NeedWorkloads: func() { ev.Workloads = &decide.Workloads{} },
				decide.NeedOwner:     func() { ev.Owner = new(owner.OfNode("n", "u")) },
			} {
				loaders[need] = func(decide.Plan) error {
					if asked++; asked > 30 {
						t.Fatalf("%q: there is no end of needs, the last is %s", raw, need)
					}
					load()
					return nil
				}
			}
			plan, err := decide.ResolveWith(next, &in, &ev, func() time.Time { return now }, loaders)
			if err != nil {
				t.Fatalf("%q: %v", raw, err)
			}
			return plan
		}
		plan := ask(decide.Next)
		if plan.Step == decide.StepNone && plan.RequeueAfter <= 0 {
			t.Errorf("%q: nothing is done, and nobody looks again: %+v", raw, plan)
		}
		if plan.Step == decide.StepRecord || plan.Step == decide.StepDelete {
			n.Annotations[marks.AnnotationRecord] = plan.Change.Record.Encode()
			if again := marks.Observe(n, cfg.Vocabulary()); again.RecordProblem != "" {
				t.Errorf("%q: what is written cannot be read: %s", raw, again.RecordProblem)
			}
		}
		ask(func(in decide.Input, ev decide.Evidence, now time.Time) decide.Plan {
			_, then := decide.Remediation(in, ev, now)
			return then
		})

		c := newCluster(t, config.PerNodeAll)
		c.present = []decide.Input{in}
		families, err := c.registry.Gather()
		if err != nil {
			t.Errorf("%q: the metrics cannot be collected: %v", raw, err)
		}
		if _, err := json.Marshal(families); err != nil {
			t.Errorf("%q: %v", raw, err)
		}
	})
}
