package nodestatus

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/node"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *metav1.Time {
	t := metav1.NewTime(now.Add(-d))
	return &t
}

func micro(d time.Duration) *metav1.MicroTime {
	t := metav1.NewMicroTime(now.Add(d))
	return &t
}

// change makes a node that is not gated, not labelled and has no record into something else.
type change func(*corev1.Node)

func gated(n *corev1.Node) {
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: config.DefaultTaintKey, Value: "true", Effect: corev1.TaintEffectNoSchedule})
}

func labelled(n *corev1.Node) { n.Labels[config.DefaultLabelKey] = "true" }

func label(key, value string) change { return func(n *corev1.Node) { n.Labels[key] = value } }

func skip(n *corev1.Node) { n.Annotations[node.AnnotationSkip] = "true" }

func deleting(n *corev1.Node) { n.DeletionTimestamp = ago(0) }

func recorded(r node.Record) change {
	return func(n *corev1.Node) {
		r.NodeUID = string(n.UID)
		n.Annotations[node.AnnotationRecord] = r.Encode()
	}
}

func condition(reason, message string) change {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: node.ConditionType, Status: corev1.ConditionUnknown,
			Reason: reason, Message: message, LastTransitionTime: *ago(time.Hour)})
	}
}

func make1(changes ...change) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: types.UID("uid"), ResourceVersion: "7", Labels: map[string]string{}, Annotations: map[string]string{}}}
	n.Status.NodeInfo.BootID = "boot"
	for _, c := range changes {
		c(n)
	}
	return n
}

func pod(attempt int32, state workerpod.State) Pod {
	o := workerpod.Observation{Name: "verify", UID: "p", Node: "n", Purpose: workerpod.PurposeVerify, Attempt: attempt, State: state, Created: now.Add(-20 * time.Second)}
	if state == workerpod.Running {
		o.Started = now.Add(-10 * time.Second)
	}
	return Pod{Observation: o, Namespace: "ns"}
}

func configuration(t *testing.T, data string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(data), "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var (
	passed = node.Record{Sequence: 3, LastOutcome: node.OutcomePassed, LastTime: ago(time.Minute), VerifiedTime: ago(time.Minute), BootID: "boot"}
	failed = node.Record{Sequence: 2, Attempts: 2, LastOutcome: node.OutcomeFailed, LastCheck: "dns", LastReason: "NXDOMAIN", LastMessage: "no such name",
		LastTime: ago(5 * time.Second), NextAttemptTime: micro(15 * time.Second), BootID: "boot"}
)

func exhausted() node.Record {
	r := failed
	r.Sequence, r.Attempts, r.NextAttemptTime, r.Probed = 5, 5, nil, true
	return r
}

func TestOf(t *testing.T) {
	held := exhausted()
	held.Held, held.HeldMessage, held.NextAttemptTime = "maxUnhealthy", "3 of 5 nodes are unhealthy", micro(30*time.Second)
	late := failed
	late.NextAttemptTime = micro(-5 * time.Minute)
	inconclusive := node.Record{Sequence: 1, Inconclusive: 1, LastOutcome: node.OutcomeInconclusive, LastReason: "ImagePull", LastMessage: "not there",
		LastTime: ago(time.Second), NextAttemptTime: micro(time.Second), BootID: "boot"}
	finished := pod(4, workerpod.Finished)
	finished.Outcome = node.OutcomePassed
	unschedulable := pod(1, workerpod.Pending)
	unschedulable.UnschedulableSince, unschedulable.UnschedulableMessage = now, "0/1 nodes are available"

	for _, test := range []struct {
		name, config              string
		node                      *corev1.Node
		pods                      []Pod
		status, why, next         string
		at                        time.Duration // of next, from now; 0 for none
		worker, labelled, tainted bool
	}{
		{name: "never seen", node: make1(), status: Unmanaged, why: "never had a gating taint", next: "nothing"},
		{name: "skipped", node: make1(gated, skip), status: Excluded, why: "annotation node-ready/skip opts it out", next: "nothing", tainted: true},
		{name: "control plane", node: make1(gated, label(node.LabelControlPlane, "")), status: Excluded, why: "control-plane nodes", next: "nothing", tainted: true},
		{name: "not selected", config: "nodeManagement: {nodeSelector: {matchLabels: {a: b}}}", node: make1(gated), status: Excluded, why: "nodeManagement.nodeSelector", next: "nothing", tainted: true},
		{name: "deleting", node: make1(gated, deleting), status: Deleting, next: "the node is being deleted", tainted: true},
		{name: "new", node: make1(gated), status: "pending", next: "attempt 1 starts now", tainted: true},
		{name: "long due", node: make1(gated, condition(node.ReasonVerifying, "x")), status: "pending", next: "attempt 1 is overdue: is the controller running", at: -time.Hour, tainted: true},
		{name: "waiting", node: make1(gated, condition(node.ReasonWaitingForPrerequisites, "Waiting for node condition A to be True")), status: "pending",
			why: "waits for node condition A to be True", next: "attempt 1, as soon as the prerequisites hold", tainted: true},
		{name: "worker pending", node: make1(gated), pods: []Pod{unschedulable}, status: "verifying", why: "worker is pending; kube-scheduler: 0/1 nodes",
			next: "the worker starts, or is given up", at: 280 * time.Second, worker: true, tainted: true},
		{name: "worker running", node: make1(gated), pods: []Pod{pod(1, workerpod.Running)}, status: "verifying", why: "worker is running",
			next: "the worker ends, at the latest", at: 110 * time.Second, worker: true, tainted: true},
		{name: "worker of an attempt that is recorded", node: make1(gated, recorded(failed)), pods: []Pod{pod(2, workerpod.Finished)}, status: "failed",
			why: "check dns: NXDOMAIN: no such name", next: "attempt 3", at: 15 * time.Second, tainted: true},
		{name: "a probe is no attempt", node: make1(gated, recorded(failed)), pods: []Pod{{Observation: workerpod.Observation{Purpose: workerpod.PurposeProbe, State: workerpod.Running}}},
			status: "failed", why: "check dns", next: "attempt 3", at: 15 * time.Second, tainted: true},
		{name: "passed, not registered by Karpenter", node: make1(gated, recorded(passed), label(node.LabelKarpenterNodePool, "p"), condition(node.ReasonWaitingForPrerequisites, "All passed; Karpenter is awaited")),
			pods: []Pod{finished}, status: "verifying", why: "All passed; Karpenter is awaited", next: "the taint is removed when Karpenter sets karpenter.sh/registered", worker: true, tainted: true},
		{name: "passed, not recorded", node: make1(gated, recorded(passed)), pods: []Pod{finished}, status: "verifying", why: "worker has passed, its result is being recorded",
			next: "its result is recorded", worker: true, tainted: true},
		{name: "inconclusive", node: make1(gated, recorded(inconclusive)), status: "pending", why: "ImagePull: not there", next: "attempt 2", at: time.Second, tainted: true},
		{name: "overdue", node: make1(gated, recorded(late)), status: "failed", why: "check dns", next: "attempt 3 is overdue", at: -5 * time.Minute, tainted: true},
		{name: "exhausted", node: make1(gated, recorded(exhausted())), status: "failed", why: "check dns", next: "no further attempt; kubectl node-ready reverify n starts one", tainted: true},
		{name: "exhausted, deletion on", config: "nodeManagement: {deleteFailedNodes: true}", node: make1(gated, recorded(func() node.Record {
			r := exhausted()
			r.NextAttemptTime = micro(30 * time.Second)
			return r
		}())), status: "failed", why: "check dns", next: "the guards of nodeManagement.remediation decide", tainted: true},
		{name: "held", config: "nodeManagement: {deleteFailedNodes: true}", node: make1(gated, recorded(held)), status: "held",
			why: "check dns: NXDOMAIN: no such name; maxUnhealthy holds its deletion: 3 of 5", next: "attempt 6", at: 30 * time.Second, tainted: true},
		{name: "verified", node: make1(labelled, recorded(passed)), status: "verified", next: "nothing, until it reboots", labelled: true},
		{name: "verified, never again", config: "nodeManagement: {reverify: {onReboot: false}}", node: make1(labelled, recorded(passed)), status: "verified", next: "nothing", labelled: true},
		{name: "verified, again by age", config: "nodeManagement: {reverify: {interval: 1h}}", node: make1(labelled, recorded(passed)), status: "verified",
			next: "it is verified again", at: 59 * time.Minute, labelled: true},
		{name: "label removed", node: make1(recorded(passed)), status: "pending", next: "attempt 4 starts now"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Of(configuration(t, test.config), test.node, test.pods, now)
			if got.Status != test.status || !strings.HasPrefix(got.Why, test.why) || test.why == "" && got.Why != "" || !strings.HasPrefix(got.Next.Action, test.next) {
				t.Errorf("status %q, why %q, next %q\nwant   %q,     %q,      %q", got.Status, got.Why, got.Next.Action, test.status, test.why, test.next)
			}
			switch {
			case test.at == 0 && got.Next.Time != nil:
				t.Errorf("next is at %v, want no time", got.Next.Time)
			case test.at != 0 && (got.Next.Time == nil || !got.Next.Time.Time.Equal(now.Add(test.at))):
				t.Errorf("next is at %v, want %v", got.Next.Time, now.Add(test.at))
			}
			if (got.Worker != nil) != test.worker || got.Labelled != test.labelled || (len(got.Taints) > 0) != test.tainted {
				t.Errorf("worker %v, labelled %v, taints %v", got.Worker, got.Labelled, got.Taints)
			}
		})
	}
}

// TestReverify applies the patch and asks the controller's rules: they must start the next
// attempt at once, and remember what the record said about earlier ones.
func TestReverify(t *testing.T) {
	once := exhausted()
	once.VerifiedTime = ago(time.Hour)
	for _, test := range []struct {
		name    string
		node    *corev1.Node
		attempt int32
	}{
		{"verified", make1(labelled, recorded(passed)), 4},
		{"verified, record lost", make1(labelled), 1},
		{"exhausted", make1(gated, recorded(exhausted())), 6},
		{"once verified, exhausted", make1(gated, recorded(once)), 6},
		{"between attempts", make1(gated, recorded(failed)), 3},
		{"never managed", make1(), 1},
		{"record of another node of this name", make1(labelled, func(n *corev1.Node) { n.Annotations[node.AnnotationRecord] = `{"nodeUID":"other","sequence":9}` }), 1},
		{"record unreadable", make1(gated, func(n *corev1.Node) { n.Annotations[node.AnnotationRecord] = "{" }), 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := configuration(t, "")
			patch, message, err := Reverify(cfg, test.node, nil, now)
			if err != nil || patch == nil {
				t.Fatalf("patch %s, message %q, error %v", patch, message, err)
			}
			var guard struct {
				Metadata struct{ ResourceVersion string }
			}
			if err := json.Unmarshal(patch, &guard); err != nil || guard.Metadata.ResourceVersion != "7" {
				t.Errorf("the patch is not guarded by the resourceVersion: %s", patch)
			}
			after := apply(t, test.node, patch)
			in := Observe(cfg, after, nil)
			if plan := decide.Verify(in, now); plan.Step != decide.StepStart || plan.Attempt != test.attempt {
				t.Errorf("the controller's step is %q, attempt %d; want start, attempt %d", plan.Step, plan.Attempt, test.attempt)
			}
			before := Observe(cfg, test.node, nil).Node
			if in.Node.Gated != before.Gated {
				t.Error("the taint changed")
			}
			if before.Record.Verified() != in.Node.Record.Verified() {
				t.Error("the record forgot whether the node once was verified")
			}
			if in.Node.Record.LastOutcome == node.OutcomeFailed || in.Node.Record.Attempts != 0 && in.Node.Record.LastOutcome != node.OutcomePassed {
				t.Errorf("the budget is not whole again: %+v", in.Node.Record)
			}
		})
	}
}

func TestReverifyRefusals(t *testing.T) {
	finished := pod(1, workerpod.Finished)
	for _, test := range []struct {
		name         string
		node         *corev1.Node
		pods         []Pod
		message, err string
	}{
		{"skipped", make1(gated, skip), nil, "", "node n is not verified: annotation node-ready/skip"},
		{"deleting", make1(gated, deleting), nil, "", "node n is being deleted"},
		{"under way", make1(gated), []Pod{pod(1, workerpod.Running)}, "attempt 1 is under way already", ""},
		{"ended", make1(gated), []Pod{finished}, "attempt 1 has ended", ""},
		{"waiting", make1(gated, condition(node.ReasonWaitingForPrerequisites, "Waiting for pods")), nil, "it is verified as soon as its prerequisites hold: pods", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			patch, message, err := Reverify(configuration(t, ""), test.node, test.pods, now)
			if patch != nil || !strings.HasPrefix(message, test.message) {
				t.Errorf("patch %s, message %q", patch, message)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
}

// apply is a merge patch as the API server would apply it to these fields.
func apply(t *testing.T, n *corev1.Node, patch []byte) *corev1.Node {
	t.Helper()
	original, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch, corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	var after corev1.Node
	if err := json.Unmarshal(merged, &after); err != nil {
		t.Fatal(err)
	}
	return &after
}
