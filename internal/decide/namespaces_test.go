package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

func TestWorkerNamespaces(t *testing.T) {
	at := func(namespace string, since time.Time, seconds int64) FormerNamespace {
		return FormerNamespace{Namespace: namespace, Since: since, Seconds: seconds}
	}
	one := func(namespace string, since time.Time, seconds int64) []FormerNamespace {
		return []FormerNamespace{at(namespace, since, seconds)}
	}
	old := at("b", now.Add(-10*time.Second), 60)
	for name, tc := range map[string]struct {
		have WorkerNamespaces
		want []FormerNamespace
	}{
		"nothing was kept":          {WorkerNamespaces{}, nil},
		"the same":                  {WorkerNamespaces{Namespace: "a", Seconds: 60}, nil},
		"another":                   {WorkerNamespaces{Namespace: "b", Seconds: 60}, one("b", now, 60)},
		"one before it":             {WorkerNamespaces{Namespace: "a", Former: []FormerNamespace{old}}, []FormerNamespace{old}},
		"another, and one before":   {WorkerNamespaces{"c", 9, []FormerNamespace{old}}, []FormerNamespace{old, at("c", now, 9)}},
		"changed back":              {WorkerNamespaces{"b", 60, one("a", now, 60)}, one("b", now, 60)},
		"its deadline is over":      {WorkerNamespaces{"a", 60, one("b", now.Add(-time.Hour), 60)}, nil},
		"one from the future":       {WorkerNamespaces{"a", 60, one("b", now.Add(time.Hour), 60)}, one("b", now, 60)},
		"a deadline that is forged": {WorkerNamespaces{"a", 60, one("b", now.Add(-time.Hour), -1)}, nil},
	} {
		got := tc.have.Next("a", 30, now)
		if got.Namespace != "a" || got.Seconds != 30 || !slices.Equal(got.Former, tc.want) {
			t.Errorf("%s: %+v, want %v before it", name, got, tc.want)
		}
	}
	if until := at("b", now, 1<<62).Until(); until.Before(now) {
		t.Errorf("a forged deadline ends at %v", until)
	}
}

// A worker that an earlier leader created in another namespace is not seen. Until its deadline no second one
// starts.
func TestNoWorkerBesideOneInAFormerNamespace(t *testing.T) {
	since := now.Add(-10 * time.Second)
	former := func(created time.Time) func(*Input) {
		return func(in *Input) {
			in.Node.Created = created
			in.FormerNamespaces = []FormerNamespace{
				{Namespace: "before", Since: since.Add(-time.Minute), Seconds: 30}, {Namespace: "old", Since: since, Seconds: 360},
			}
		}
	}
	end := since.Add(360*time.Second + formerSlack)
	in := given(former(since.Add(-time.Hour)))
	pod := "old/" + workerpod.VerifyName(workerpod.Target{Name: "n", UID: "u1"}, 1)
	plan, _ := ask(t, in, world{})
	if plan.Step != StepNone || reasonOf(plan.Condition) != marks.ReasonVerifying || plan.RequeueAfter != end.Sub(now) ||
		!strings.Contains(plan.Condition.Message, pod) {
		t.Fatalf("%+v, %+v", plan, plan.Condition)
	}
	if e := plan.Events; len(e) != 1 || e[0].Reason != EventWorkerOrphaned || !strings.Contains(e[0].Message, pod) {
		t.Errorf("events %+v", plan.Events)
	}
	if plan = Next(in, Evidence{Fresh: true, Unmet: &[]Unmet{}, Slot: new(true)}, end); plan.Step != StepStart {
		t.Errorf("after its deadline: %+v", plan)
	}
	if plan, _ = ask(t, given(former(now)), world{}); plan.Step != StepNone {
		t.Errorf("created about when the namespace changed: %+v", plan)
	}
	if plan, _ = ask(t, given(former(since.Add(2*clockTolerance))), world{}); plan.Step != StepStart {
		t.Errorf("created later: %+v", plan)
	}
}
