package kubectlplugin

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) *time.Time {
	t := now.Add(d)
	return &t
}

// change makes a node that is not gated, not labelled and has no record into something else.
type change func(*corev1.Node)

func gated(n *corev1.Node) { tainted(config.DefaultTaintKey)(n) }

func tainted(key string) change {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
}

func labelled(n *corev1.Node) { n.Labels[config.DefaultLabelKey] = "true" }

func label(key, value string) change { return func(n *corev1.Node) { n.Labels[key] = value } }

func annotated(key, value string) change {
	return func(n *corev1.Node) { n.Annotations[key] = value }
}

func leaving(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: now} }

func having(r marks.Record) change {
	r.NodeUID = "uid"
	return annotated(marks.AnnotationRecord, r.Encode())
}

func condition(reason, message string) change {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: marks.ConditionType, Status: corev1.ConditionUnknown,
			Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))})
	}
}

func makeNode(changes ...change) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: types.UID("uid"), ResourceVersion: "7", Labels: map[string]string{}, Annotations: map[string]string{}}}
	n.Status.NodeInfo.BootID = "boot"
	for _, c := range changes {
		c(n)
	}
	return n
}

func configuration(t *testing.T, data string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(data), "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// workers are pods of these attempts, as the controller makes them and the kubelet has begun to run them.
func workers(t *testing.T, numbers ...int32) []corev1.Pod {
	t.Helper()
	cfg := configuration(t, "")
	b, err := workerpod.NewBuilder(cfg, "ns", "image")
	if err != nil {
		t.Fatal(err)
	}
	var pods []corev1.Pod
	for _, number := range numbers {
		pod := b.Verify(workerpod.Target{Name: "n", UID: "uid"}, cfg.For(nil), number, config.SchedulingDirect)
		pod.UID, pod.CreationTimestamp = types.UID(pod.Name), metav1.NewTime(now.Add(-20*time.Second))
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: workerpod.Container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		pods = append(pods, *pod)
	}
	return pods
}

var (
	passed = marks.Record{Sequence: 3, LastOutcome: attempt.Passed, LastTime: after(-time.Minute), VerifiedTime: after(-time.Minute), BootID: "boot"}
	failed = marks.Record{Checks: "a hash", Sequence: 2, Attempts: 2, LastOutcome: attempt.Failed, LastCheck: "dns", LastReason: "NXDOMAIN", LastMessage: "no such name",
		LastTime: after(-5 * time.Second), NextAttemptTime: after(15 * time.Second), BootID: "boot"}
	inconclusive = marks.Record{Sequence: 1, Inconclusive: 1, LastOutcome: attempt.Inconclusive, LastReason: "ImagePull", LastMessage: "not there",
		LastTime: after(-time.Second), NextAttemptTime: after(time.Second), BootID: "boot"}
)

func exhausted() marks.Record {
	r := failed
	r.Sequence, r.Attempts, r.NextAttemptTime, r.Probed = 5, 5, after(10*time.Minute), true
	return r
}

func TestSummary(t *testing.T) {
	held := exhausted()
	held.Held, held.HeldMessage = "maxUnhealthy", "3 of 5 nodes are unhealthy"
	late := failed
	late.NextAttemptTime = after(-time.Second)
	relapsed := failed
	relapsed.VerifiedTime = after(-time.Hour)
	foreign := workers(t, 1)
	foreign[0].OwnerReferences[0].UID = "other"
	for _, test := range []struct {
		name, config string
		node         *corev1.Node
		pods         []corev1.Pod
		status, why  string
		next, since  time.Duration // from now; 0 for none
		worker       int32         // the attempt under way
		taints       string
	}{
		{name: "never seen", node: makeNode(), status: "unmanaged"},
		{name: "opened", node: makeNode(opens(marks.ReasonGateRemoved)), status: "opened-unverified", since: -time.Hour},
		{name: "skipped", node: makeNode(gated, annotated(marks.AnnotationSkip, "true"), having(failed)), status: "excluded", why: "check dns: NXDOMAIN: no such name", since: -5 * time.Second, taints: "gate"},
		{name: "control plane", node: makeNode(label(marks.LabelControlPlane, "")), status: "excluded"},
		{name: "control plane that is gated all the same", node: makeNode(gated, label(marks.LabelControlPlane, "")), status: "pending", taints: "gate"},
		{name: "not selected", config: "nodeManagement: {nodeSelector: {matchLabels: {a: b}}}", node: makeNode(gated), status: "excluded", taints: "gate"},
		{name: "deleting", node: makeNode(gated, leaving, having(failed)), status: "deleting", why: "check dns: NXDOMAIN: no such name", since: -5 * time.Second, taints: "gate"},
		{name: "new", node: makeNode(gated), status: "pending", taints: "gate"},
		{name: "gated by a profile that does not select it", config: "profiles: [{name: gpu, nodeSelector: {matchLabels: {a: b}}, taints: [{key: gpu/unverified, effect: NoSchedule}]}]",
			node: makeNode(tainted("gpu/unverified")), status: "pending", taints: "gpu/unverified=true:NoSchedule"},
		{name: "waiting", node: makeNode(gated, condition(marks.ReasonWaitingForPrerequisites, "Waiting for condition A")), status: "pending",
			why: "Waiting for condition A", since: -time.Hour, taints: "gate"},
		{name: "the condition goes before the record", node: makeNode(gated, having(failed), condition(marks.ReasonChecksFailed, "failure 2 of 5")), status: "failed",
			why: "failure 2 of 5", next: 15 * time.Second, since: -time.Hour, taints: "gate"},
		{name: "worker", node: makeNode(gated), pods: workers(t, 1), status: "verifying", worker: 1, taints: "gate"},
		{name: "worker that is not ours", node: makeNode(gated), pods: foreign, status: "pending", taints: "gate"},
		{name: "worker of an attempt that is recorded", node: makeNode(gated, having(failed)), pods: workers(t, 2), status: "failed",
			why: "check dns: NXDOMAIN: no such name", next: 15 * time.Second, since: -5 * time.Second, taints: "gate"},
		{name: "worker of the next attempt", node: makeNode(gated, having(late)), pods: workers(t, 2, 3), status: "verifying",
			why: "check dns: NXDOMAIN: no such name", since: -5 * time.Second, worker: 3, taints: "gate"},
		{name: "inconclusive", node: makeNode(gated, having(inconclusive)), status: "pending", why: "ImagePull: not there", next: time.Second, since: -time.Second, taints: "gate"},
		{name: "due", node: makeNode(gated, having(late)), status: "failed", why: "check dns: NXDOMAIN: no such name", since: -5 * time.Second, taints: "gate"},
		{name: "exhausted", node: makeNode(gated, having(exhausted())), status: "failed", why: "check dns: NXDOMAIN: no such name", next: 10 * time.Minute, since: -5 * time.Second, taints: "gate"},
		{name: "failed, and verified before", node: makeNode(gated, having(relapsed)), status: "failed", why: "check dns: NXDOMAIN: no such name", next: 15 * time.Second, since: -5 * time.Second, taints: "gate"},
		{name: "wound back", node: makeNode(gated, having(marks.Record{Sequence: 2, VerifiedTime: after(-time.Hour)})), status: "pending", since: -time.Hour, taints: "gate"},
		{name: "held", node: makeNode(gated, having(held)), status: "held", why: "check dns: NXDOMAIN: no such name", next: 10 * time.Minute, since: -5 * time.Second, taints: "gate"},
		{name: "verified", node: makeNode(labelled, having(passed)), status: "verified", since: -time.Minute},
		{name: "label removed", node: makeNode(having(passed)), status: "pending", since: -time.Minute},
		{name: "record of another node of this name", node: makeNode(gated, annotated(marks.AnnotationRecord, `{"nodeUID":"other","sequence":9,"lastOutcome":"failed"}`)), status: "pending", taints: "gate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := observe(configuration(t, test.config), test.node, test.pods)
			got := s.summary(now)
			if got.Status != test.status || got.Why != test.why {
				t.Errorf("status %q, why %q; want %q, %q", got.Status, got.Why, test.status, test.why)
			}
			var next *time.Time
			if !got.Next.Time.IsZero() {
				next = &got.Next.Time
			}
			if !at(next, test.next) || !at(s.since(), test.since) {
				t.Errorf("next %v, since %v; want %v, %v from now", next, s.since(), test.next, test.since)
			}
			if got.Worker.Attempt != test.worker {
				t.Errorf("worker %+v, want that of attempt %d", got.Worker, test.worker)
			}
			if want := strings.Replace(test.taints, "gate", "node-ready/unverified=true:NoSchedule", 1); strings.Join(got.Taints, ",") != want {
				t.Errorf("gating taints %q, want %q", got.Taints, want)
			}
		})
	}
}

// at reports whether a time is so far from now; 0 is for none.
func at(got *time.Time, want time.Duration) bool {
	return got == nil && want == 0 || got != nil && want != 0 && got.Equal(now.Add(want))
}

// The names of the JSON output are for scripts.
func TestJSON(t *testing.T) {
	r := exhausted()
	r.Held, r.HeldMessage, r.VerifiedTime, r.Inconclusive, r.DurationMs = "maxUnhealthy", "3 of 5", after(-time.Hour), 1, 12
	r.Deletion = &marks.Deletion{Kind: "NodeClaim", Name: "claim", UID: "c", Time: now}
	n := makeNode(gated, having(r), label(owner.LabelNodePool, "p"), label("gpu", "yes"))
	cfg := configuration(t, "profiles: [{name: gpu, nodeSelector: {matchLabels: {gpu: 'yes'}}}]")
	got, err := json.Marshal(observe(cfg, n, workers(t, 6)).summary(now))
	if err != nil {
		t.Fatal(err)
	}
	worker := workers(t, 6)[0].Name
	want := `{"name":"n","status":"held","state":"verifying","why":"check dns: NXDOMAIN: no such name","next":{"time":"2026-03-01T12:10:00Z"},"pool":"p","profile":"gpu",` +
		`"taints":["node-ready/unverified=true:NoSchedule"],"labelled":false,"attempts":5,"maxRetries":5,"inconclusive":1,` +
		`"last":{"number":5,"outcome":"failed","check":"dns","reason":"NXDOMAIN","message":"no such name","time":"2026-03-01T11:59:55Z","durationMs":12},` +
		`"verifiedTime":"2026-03-01T11:00:00Z","held":{"guard":"maxUnhealthy","message":"3 of 5"},"deletion":{"kind":"NodeClaim","name":"claim","uid":"c","time":"2026-03-01T12:00:00Z"},` +
		`"worker":{"namespace":"ns","name":"` + worker + `","attempt":6,"state":"running","created":"2026-03-01T11:59:40Z"}}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What explain prints besides the checks and the events.
func TestFacts(t *testing.T) {
	r := failed
	r.Held, r.HeldMessage, r.VerifiedTime = "maxUnhealthy", "3 of 5\x1b[2J", after(-time.Hour)
	r.Deletion = &marks.Deletion{Kind: "NodeClaim", Name: "claim", UID: "c", Time: *after(-time.Minute)}
	for _, test := range []struct {
		node *corev1.Node
		pods []corev1.Pod
		want []string
	}{
		{makeNode(gated, tainted("other"), having(r), condition(marks.ReasonRemediationHeld, "held by maxUnhealthy"), label(owner.LabelNodePool, "p")), workers(t, 3), []string{
			"Node n", "State verifying", "Since 60m ago (2026-03-01T11:00:00Z)", "Why held by maxUnhealthy", "Next in 15s (2026-03-01T12:00:15Z)",
			"Retries 2 of 5 spent, 0 attempts inconclusive", "Last attempt 2, failed; 5s ago (2026-03-01T11:59:55Z); check dns: NXDOMAIN: no such name",
			"Verified 60m ago (2026-03-01T11:00:00Z)", "Action held maxUnhealthy: 3 of 5[2J", "Deletion NodeClaim claim, decided 60s ago (2026-03-01T11:59:00Z)",
			"Worker ns/" + workers(t, 3)[0].Name + ", attempt 3, running, created 20s ago (2026-03-01T11:59:40Z)", "Pool p",
			"Gating taints node-ready/unverified=true:NoSchedule", "Other taints other=true:NoSchedule", "Verified label no node-ready/verified=true",
			"Condition node-ready/Verified=Unknown RemediationHeld",
		}},
		{makeNode(labelled, annotated(marks.AnnotationRecord, "{")), nil, []string{"Node n", "State verified",
			"Record annotation node-ready/record is not a record: unexpected end of JSON input; the node gets a new record, and counts as verified before",
			"Gating taints none", "Verified label node-ready/verified=true"}},
		{makeNode(labelled, having(passed), func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: config.DefaultTaintKey, Effect: corev1.TaintEffectNoExecute}}
		}), nil, []string{"Node n", "State verified", "Since 60s ago (2026-03-01T11:59:00Z)", "Retries 0 of 5 spent, 0 attempts inconclusive",
			"Last attempt 3, passed; 60s ago (2026-03-01T11:59:00Z)", "Verified 60s ago (2026-03-01T11:59:00Z)", "Gating taints none",
			"Other taints node-ready/unverified:NoExecute", "Other effect node-ready/unverified:NoExecute gates nothing here, and nobody removes it",
			"Verified label node-ready/verified=true"}},
	} {
		s, v := observe(configuration(t, ""), test.node, test.pods), invocation{now: now}
		var got []string
		rows := v.facts(s, s.summary(now))
		v.print(rows, nil) // which makes each cell a single line
		for _, row := range rows {
			got = append(got, strings.Join(row, " "))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

// For each kind of waiting it says what is waited for, since when, and when the node's time is over.
func TestExplainWaiting(t *testing.T) {
	cfg := configuration(t, "reconciliation: {verificationDeadlineSeconds: 7200}")
	said := func(reason, message string) change {
		return func(n *corev1.Node) {
			condition(reason, message)(n)
			n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(now.Add(-10 * time.Minute))
			n.CreationTimestamp = metav1.NewTime(now.Add(-3 * time.Hour))
		}
	}
	const (
		thatSince  = "That since 10m ago (2026-03-01T11:50:00Z)"
		unverified = "Unverified 3h ago (2026-03-01T09:00:00Z)"
		deadline   = "Deadline 60m ago (2026-03-01T11:00:00Z)"
	)
	for message, reason := range map[string]string{
		"Waiting for the node's condition Ready to be True":                             marks.ReasonWaitingForPrerequisites,
		"Waiting for a pod of kube-system/k8s-app=agent":                                marks.ReasonWaitingForPrerequisites,
		"Waiting for the kubelet: the node's condition Ready is Unknown":                marks.ReasonWaitingForPrerequisites,
		"Waiting for a free slot (reconciliation.maxConcurrentVerifications)":           marks.ReasonWaitingForSlot,
		"All required checks passed; the taint stays until Karpenter has registered it": marks.ReasonWaitingForRegistration,
		"Not verified within 2h0m0s (since 2026-03-01T09:00:00Z): ImagePull: none":      marks.ReasonDeadlineExceeded,
	} {
		v := &invocation{now: now}
		s := observe(cfg, makeNode(gated, said(reason, message)), nil)
		var got []string
		rows := v.facts(s, s.summary(now))
		v.print(rows, nil) // which makes each cell a single line
		for _, row := range rows {
			got = append(got, strings.Join(row, " "))
		}
		for _, want := range []string{"Why " + message, thatSince, unverified, deadline} {
			if !slices.Contains(got, want) {
				t.Errorf("%s: no line %q in\n%s", reason, want, strings.Join(got, "\n"))
			}
		}
	}
	since, passed := after(-time.Hour), after(-48*time.Hour)
	s := observe(cfg, makeNode(gated, said(marks.ReasonDeadlineExceeded, "m"), having(marks.Record{VerifiedTime: passed, Since: since})), nil)
	v := &invocation{now: now}
	var got []string
	for _, row := range v.facts(s, s.summary(now)) {
		got = append(got, strings.Join(row, " "))
	}
	if all := strings.Join(got, "\n"); !strings.Contains(all, "Unverified 60m ago") || !strings.Contains(all, "Deadline in 60m") {
		t.Errorf("a node that was verified before:\n%s", all)
	}
	shared := marks.Record{VerifiedTime: passed, Since: since, LastOutcome: attempt.Failed, Attempts: 1, Shared: 1, Sequence: 2, BootID: "boot"}
	s = observe(cfg, makeNode(labelled, having(shared)), nil)
	for _, row := range v.facts(s, s.summary(now)) {
		if row[0] == "Deadline" {
			t.Errorf("the deadline of a node whose failure is shared does not run: %v", row)
		}
	}
}

// accusedBy gives a node a condition of a detector that has been True since then.
func accusedBy(kind corev1.NodeConditionType, since time.Time) change {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)})
	}
}
