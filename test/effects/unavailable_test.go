package effects

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// leases refuses what the leader may not do.
type leases struct {
	coordinationclient.LeaseInterface
	l *leader
}

func (f leases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	if f.l.noLease {
		return nil, forbidden("get leases")
	}
	return f.LeaseInterface.Get(ctx, name, o)
}

// passes drives a leader for some time, in steps of at most a second.
func (l *leader) passes(d time.Duration) {
	l.w.Helper()
	for end := l.w.clock.Now().Add(d); l.w.clock.Now().Before(end); {
		_, wait := l.turn()
		l.w.clock.advance(min(wait, time.Second))
	}
}

// says is the status, reason and message of a node's condition.
func (w *world) says(node string) string {
	w.Helper()
	_, facts := w.get(node)
	c := facts.Condition
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

func (w *world) expect(node, want string) {
	w.Helper()
	if got := w.says(node); !strings.HasPrefix(got, want) {
		w.Errorf("%s says %q, want %q", strings.TrimPrefix(node, w.ns+"-"), got, want)
	}
}

// The Lease of rules is refused for good: without rules no node waits for it, and with one those alone that it selects
// or that carry its taint. They say within a minute who may not do what, keep their taints, and go on once it is
// allowed.
func TestRefusedLeaseOfRules(t *testing.T) {
	t.Parallel()
	w := begin(t, "")
	first := w.node("first")
	l := w.leads(func(l *leader) { l.noLease, l.served = true, true })
	l.passes(10 * time.Second)
	w.expect(first.Name, "True ChecksPassed")

	w.rule(inPool)
	member := func(n *corev1.Node) { n.Labels["pool"] = "gated" }
	other, selected, carrier := w.node("other"), w.node("selected", member), w.node("carrier", untainted, w.bornHeld())
	before := w.verified("before")
	labelled("pool", "gated")(w, before.Name)
	l.passes(3 * time.Second)
	w.expect(selected.Name, "")
	l.passes(57 * time.Second)
	w.expect(other.Name, "True ChecksPassed")
	w.expect(before.Name, "True ChecksPassed")
	const why = "Unknown RulesUnavailable: Waiting for NodeReadinessRules to be served: Lease default/node-ready-rules is not renewed: "
	for _, held := range []*corev1.Node{selected, carrier} {
		w.expect(held.Name, why)
		if said := w.says(held.Name); !strings.Contains(said, `user "controller" may not get leases`) {
			t.Errorf("it does not say who may not do what: %s", said)
		}
		if n := w.emitted(held.Name, decide.EventRulesUnavailable); n != 1 {
			t.Errorf("%d events on %s", n, held.Name)
		}
	}
	if n, facts := w.get(selected.Name); !facts.Gated || len(ruleTaints(n)) > 0 || len(w.pods(selected.Name)) > 0 {
		t.Errorf("a node that waits for its rules changed: %v", n.Spec.Taints)
	}
	if n, _ := w.get(carrier.Name); len(ruleTaints(n)) != 1 {
		t.Errorf("the taint of a rule that is not served went: %v", n.Spec.Taints)
	}
	writes := l.written()
	l.passes(10 * time.Minute)
	if more := l.written() - writes; more > 0 {
		t.Errorf("%d writes in ten minutes of waiting: %v", more, l.writes[writes:])
	}

	l.noLease = false
	l.passes(time.Minute)
	w.expect(selected.Name, "True ChecksPassed")
	if n, _ := w.get(selected.Name); len(ruleTaints(n)) != 1 {
		t.Errorf("the rule does not hold the node: %v", n.Spec.Taints)
	}
}

// What a controller may not write for good keeps no node from being verified that needs no such write, and one that
// does says within a minute what is refused.
func TestForbiddenWrites(t *testing.T) {
	t.Parallel()
	for write, want := range map[string]struct {
		gated bool
		says  string
	}{
		"patch Node/status": {false, ""},
		"patch Node":        {true, `Unknown Verifying: The API server refuses a request of the controller: things is forbidden: user "controller" may not patch Node`},
		"create Pod":        {true, "Unknown WorkerInconclusive: PodRefused"},
		"delete Pod":        {false, "True ChecksPassed"},
	} {
		t.Run(strings.ReplaceAll(write, "/", " "), func(t *testing.T) {
			t.Parallel()
			w := begin(t, "")
			n := w.node("n")
			l := w.leads(func(l *leader) { l.forbid = func(what string) bool { return what == write } })
			l.passes(time.Minute)
			w.expect(n.Name, want.says)
			if _, facts := w.get(n.Name); facts.Gated != want.gated {
				t.Errorf("gated: %v", facts.Gated)
			}
		})
	}
}

// A worker that has to end before the next one starts, and that the controller may not delete: the node says so.
func TestForbiddenToEndAWorker(t *testing.T) {
	t.Parallel()
	w := begin(t, `{"worker":{"timeoutSeconds":10}}`)
	w.exit = func(*corev1.Pod) int { return stays }
	n := w.node("n")
	l := w.leads(func(l *leader) { l.forbid = func(what string) bool { return what == "delete Pod" } })
	l.passes(10 * time.Second)
	for _, p := range w.pods(n.Name) {
		w.status(&p, `{"status":{"phase":"Running","containerStatuses":[{"name":"worker","image":"i","imageID":"i","ready":true,"restartCount":0,"state":{"running":{}}}]}}`)
	}
	l.passes(2 * time.Minute)
	if said := w.says(n.Name); !strings.Contains(said, "worker pods cannot be ended: things is forbidden") {
		t.Errorf("it says %q", said)
	}
	if pods := w.pods(n.Name); len(pods) != 1 || pods[0].Labels[workerpod.LabelPurpose] != workerpod.PurposeVerify {
		t.Errorf("%d workers", len(pods))
	}
	if _, facts := w.get(n.Name); facts.Record.LastReason == "" || !facts.Gated || facts.Condition.Reason == marks.ReasonChecksPassed {
		t.Errorf("%+v", facts.Record)
	}
}

// A node that is to be deleted, and that the controller may not delete: its condition says so, and does not change any
// more.
func TestForbiddenDeletion(t *testing.T) {
	t.Parallel()
	for _, write := range []string{"delete NodeClaim", "update ConfigMap", "patch Node"} {
		t.Run(write, func(t *testing.T) {
			t.Parallel()
			w := begin(t, `{"nodeManagement":{"deleteFailedNodes":true}}`)
			w.verified("control")
			n := w.exhausted("n", pooled)
			w.claim(n)
			l := w.leads(func(l *leader) { l.forbid = func(what string) bool { return what == write } })
			l.passes(time.Minute)
			said := w.says(n.Name)
			if !strings.Contains(said, `the deletion fails: things is forbidden: user "controller" may not `+write) {
				t.Errorf("it says %q", said)
			}
			if w.deleting(n.Name) {
				t.Error("it is deleted")
			}
			l.passes(5 * time.Minute)
			if again := w.says(n.Name); again != said {
				t.Errorf("then it says %q", again)
			}
		})
	}
}
