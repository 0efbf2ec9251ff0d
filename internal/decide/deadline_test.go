package decide

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// workerImage is what the workers below need on their node.
const workerImage = "registry.example.com/worker:1"

// missedDeadline is a node that is two hours old and had to pass within one hour. This process has known it for all
// that time.
func missedDeadline(in *Input) {
	in.Profile.VerificationDeadlineSeconds = 3600
	in.Node.Created, in.NeedsVerificationSince = now.Add(-2*time.Hour), now.Add(-2*time.Hour)
	in.Config.NodeManagement.DeleteFailedNodes = true
	in.Node.HasRecord = true
	if in.Node.Record.NodeUID == "" {
		in.Node.Record = marks.Record{NodeUID: "u1", BootID: "b1", Checks: checks}
	}
}

func blamed(fault string, age time.Duration) func(*Input) {
	return func(in *Input) {
		in.Node.Record.DeadlineCause = &marks.DeadlineCause{Time: now.Add(-age), BootID: "b1", Checks: checks, Fault: fault, Message: "what it was"}
	}
}

func lastReason(reason string) func(*Input) {
	return func(in *Input) { in.Node.Record.LastReason = reason }
}

func hasImage(in *Input) {
	in.Node.Images = []corev1.ContainerImage{{Names: []string{workerImage}, SizeBytes: 1}}
}

// inconclusively is a worker that ended a second ago for the reason.
func inconclusively(reason string) func(*workerpod.Observation) {
	return func(o *workerpod.Observation) {
		ended(attempt.Inconclusive)(o)
		o.Seen.Result = failedAt
		o.Attempt.Result = attempt.NewInconclusive(reason, "why")
	}
}

// stuck is a worker that has not started in time, although its start depends only on the node.
func stuck(o *workerpod.Observation) {
	pending(o)
	o.Seen.First, o.StartTimeout, o.Images = failedAt.Add(-time.Minute), time.Minute, []string{workerImage}
}

func TestDeadlineOf(t *testing.T) {
	takes := maxAttemptDuration(given())
	passedAgo := func(d time.Duration) func(*Input) {
		return func(in *Input) { in.Node.Record.VerifiedTime = ago(d) }
	}
	since := func(d time.Duration) func(*Input) {
		return func(in *Input) { in.Node.Record.Since = ago(d) }
	}
	known := func(d time.Duration) func(*Input) {
		return func(in *Input) { in.NeedsVerificationSince = now.Add(-d) }
	}
	old := func(in *Input) { in.Node.Created = now.Add(-30 * 24 * time.Hour) }
	for name, tc := range map[string]struct {
		in   Input
		want *time.Time
	}{
		"from the creation":                          {given(missedDeadline), ago(time.Hour)},
		"whatever the boot":                          {given(missedDeadline, rebootedTo("b2")), ago(time.Hour)},
		"none is configured":                         {given(missedDeadline, func(in *Input) { in.Profile.VerificationDeadlineSeconds = 0 }), nil},
		"nobody keeps account":                       {given(missedDeadline, func(in *Input) { in.NeedsVerificationSince = time.Time{} }), nil},
		"a new leader grants a full attempt":         {given(missedDeadline, known(0)), ptr.To(now.Add(takes))},
		"and no more":                                {given(missedDeadline, known(takes)), ago(0)},
		"a month-old node without a record, too":     {given(missedDeadline, old, known(time.Minute), func(in *Input) { in.Node.Record = marks.Record{} }), ptr.To(now.Add(takes - time.Minute))},
		"once it passed, from when it was needed":    {given(missedDeadline, old, passedAgo(3*time.Hour), since(90*time.Minute)), ago(30 * time.Minute)},
		"and a full attempt there as well":           {given(missedDeadline, old, passedAgo(3*time.Hour), since(2*time.Hour), known(0)), ptr.To(now.Add(takes))},
		"that was not written yet":                   {given(missedDeadline, old, passedAgo(3*time.Hour)), nil},
		"that is of a round before":                  {given(missedDeadline, old, passedAgo(time.Hour), since(2*time.Hour)), nil},
		"that is the future":                         {given(missedDeadline, old, passedAgo(3*time.Hour), since(-time.Hour)), nil},
		"a pass in the future is no measure":         {given(missedDeadline, old, passedAgo(-time.Hour), since(90*time.Minute)), ago(30 * time.Minute)},
		"nor is its creation where its past is lost": {given(missedDeadline, func(in *Input) { in.Node.Record.HistoryLost = true }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			at, ok := verificationDeadline(tc.in, now)
			if ok != (tc.want != nil) || ok && !at.Equal(*tc.want) {
				t.Errorf("%s, %v; want %s", at, ok, tc.want)
			}
			if got := newDecision(tc.in, Evidence{}, now).deadlinePassed(); got != (ok && !at.After(now)) {
				t.Errorf("expired: %v", got)
			}
		})
	}
}

// The start of a verified node's next round is recorded once. If the node's gate is closed, the same write does both.
func TestTheRoundIsDated(t *testing.T) {
	limit := func(in *Input) { in.Profile.VerificationDeadlineSeconds = 3600 }
	taint := func(in *Input) { in.Config.NodeManagement.Reverify.Taint = true }
	again := verified(unlabelled, limit)
	plan, _ := ask(t, again, world{})
	if r := plan.Change.Record; plan.Step != StepRecord || r.Since == nil || !r.Since.Equal(now) || plan.Change.Gate != gateKeep || plan.Recorded != nil {
		t.Fatalf("%+v", plan)
	}
	again.Node.Record = plan.Change.Record
	if plan, _ = ask(t, again, world{}); plan.Step != StepStart {
		t.Errorf("after it %+v", plan)
	}
	if plan, _ = ask(t, verified(unlabelled, limit, taint), world{}); plan.Change.Gate != gateClose || plan.Change.Record.Since == nil {
		t.Errorf("with the taint: %+v", plan.Change)
	}
	if plan, _ = ask(t, verified(unlabelled), world{}); plan.Step != StepStart {
		t.Errorf("without a deadline: %+v", plan)
	}
	if plan, _ = ask(t, given(limit), world{}); plan.Step != StepStart {
		t.Errorf("a node that never passed: %+v", plan)
	}
	again.Pods = []workerpod.Observation{pod(2, ended(attempt.Passed), openGate)}
	if plan, _ = ask(t, again, world{}); plan.Recorded == nil || plan.Change.Record.Since != nil {
		t.Errorf("after a pass: %+v", plan.Change.Record)
	}
}

// Past its deadline, a node reports that, whatever it waits for. The text is the same at every reconcile.
func TestWhatANodePastItsDeadlineSays(t *testing.T) {
	waits := world{waits: []Unmet{{Kind: "nodeReady", Message: "the node's condition Ready to be True"}}}
	noDeletion := func(in *Input) { in.Config.NodeManagement.DeleteFailedNodes = false }
	unregistered := func(in *Input) { in.Node.Owner = owner.Signs{Kind: "NodeClaim", Managed: true} }
	for name, tc := range map[string]struct {
		in    Input
		world world
		says  string // of the message; empty: another condition
		else_ string
	}{
		"a prerequisite":       {in: given(missedDeadline, noDeletion), world: waits, says: "Waiting for the node's condition Ready"},
		"a slot":               {in: given(missedDeadline), world: world{full: true}, says: "maxConcurrentVerifications"},
		"the kubelet":          {in: given(missedDeadline, lost), says: "Waiting for the kubelet"},
		"registration":         {in: given(missedDeadline, unregistered, with(pod(1, ended(attempt.Passed)))), says: owner.LabelRegistered},
		"the first attempt":    {in: given(missedDeadline, with(pod(1))), says: "no attempt has ended"},
		"between attempts":     {in: puzzling(3, missedDeadline), says: "ImagePull: no such image"},
		"another attempt":      {in: puzzling(3, missedDeadline, with(pod(4))), says: "ImagePull: no such image"},
		"a failed check":       {in: failing(2, missedDeadline), says: "check dns: Timeout: no answer"},
		"what is shared":       {in: given(missedDeadline, blamed(marks.FaultShared, time.Minute)), world: waits, says: "no action is taken: what it was"},
		"a deletion":           {in: puzzling(3, missedDeadline, lastReason(attempt.ReasonKubeletRejected), blamed(marks.FaultNode, 0), func(in *Input) { in.Node.Record.Deletion = &marks.Deletion{Kind: owner.Node, Name: "n"} }), world: world{owner: owner.Owner{Terminating: true}}, says: "Node n is being deleted"},
		"exhausted":            {in: failing(5, missedDeadline, noDeletion), else_: marks.ReasonRetriesExhausted},
		"held":                 {in: failing(5, missedDeadline, deleting, heldBy(GuardSparePods)), world: world{fleet: deletable().fleet, workloads: Workloads{Names: []string{"a/b"}}}, else_: marks.ReasonRemediationHeld},
		"held without attempt": {in: given(missedDeadline, heldBy(GuardSparePods), blamed(marks.FaultNode, time.Minute)), world: world{waits: waits.waits, workloads: Workloads{Names: []string{"a/b"}}, fleet: deletable().fleet}, else_: marks.ReasonRemediationHeld},
		"before it":            {in: given(missedDeadline, with(pod(1)), func(in *Input) { in.NeedsVerificationSince = now }), else_: marks.ReasonVerifying},
	} {
		t.Run(name, func(t *testing.T) {
			plan, _ := ask(t, tc.in, tc.world)
			c := plan.Condition
			if tc.says == "" {
				if reasonOf(c) != tc.else_ {
					t.Errorf("says %+v, want %s", c, tc.else_)
				}
				return
			}
			if reasonOf(c) != marks.ReasonDeadlineExceeded || c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, tc.says) || !strings.Contains(c.Message, "within 1h0m0s (since 2026-03-01T10:00:00Z)") {
				t.Fatalf("says %+v", c)
			}
			if got := reasons(plan.Events); got[len(got)-1] != EventFailed.Name {
				t.Errorf("events %v", got)
			}
			tc.in.Node.Condition = &corev1.NodeCondition{Type: marks.ConditionType, Status: c.Status, Reason: c.Reason, Message: c.Message}
			later, _ := askAt(t, tc.in, tc.world, now.Add(100*time.Millisecond))
			if later.Condition == nil || *later.Condition != *c || len(later.Events) >= len(plan.Events) {
				t.Errorf("a moment later %+v, events %v", later.Condition, later.Events)
			}
			if got := StatusOf(tc.in, now); got != StatusFailed {
				t.Errorf("status %s", got)
			}
			if !SummaryOf(tc.in).Unhealthy {
				t.Error("the fleet counts it as healthy")
			}
			// A new leader keeps reporting it, but takes no action before a full attempt.
			tc.in.NeedsVerificationSince = now
			if next, _ := ask(t, tc.in, tc.world); reasonOf(next.Condition) != marks.ReasonDeadlineExceeded || next.Step == StepDelete {
				t.Errorf("its successor: %+v", next)
			}
		})
	}
}

// A cause that keeps a node from passing by its deadline counts against the node only under two conditions. The cause
// lies on the node, and a probe made after the deadline passed on a verified node.
func TestWhoseFaultItIs(t *testing.T) {
	rejected := with(pod(1, inconclusively(attempt.ReasonKubeletRejected)))
	passing := []workerpod.Observation{probe("m0", ended(attempt.Passed))}
	lacks := []Unmet{{Kind: "pods", Message: "a pod of the agent"}}
	ends := func(reason string) Input {
		return given(missedDeadline, hasImage, with(pod(1, inconclusively(reason))))
	}
	fine := world{probes: passing, fleet: healthyNodes(3, "")}
	for name, tc := range map[string]struct {
		in    Input
		world world
		fault string // empty: nothing is found out
		step  Step
	}{
		"the kubelet rejects":                         {given(missedDeadline, rejected), fine, marks.FaultNode, StepRecord},
		"even without remediation.controlProbe":       {given(missedDeadline, rejected, noProbe), world{fleet: healthyNodes(3, "")}, "", StepProbe},
		"it does not start":                           {given(missedDeadline, hasImage, with(pod(1, stuck))), fine, marks.FaultNode, StepRecord},
		"and its image is not there":                  {given(missedDeadline, with(pod(1, stuck))), fine, "", StepRecord},
		"nor is what else it needs":                   {given(missedDeadline, hasImage, with(pod(1, stuck, func(o *workerpod.Observation) { o.Images = append(o.Images, "init:1") }))), fine, "", StepRecord},
		"it was not to start by itself":               {given(missedDeadline, hasImage, with(pod(1, stuck, func(o *workerpod.Observation) { o.Images = nil }))), fine, "", StepRecord},
		"it lacks what another has":                   {given(missedDeadline), world{waits: lacks, probes: passing, fleet: healthyNodes(3, "")}, marks.FaultNode, StepRecord},
		"which the other lacks too":                   {given(missedDeadline), world{waits: lacks, elsewhere: lacks, probes: passing, fleet: healthyNodes(3, "")}, marks.FaultShared, StepRecord},
		"and there is no other":                       {given(missedDeadline), world{waits: lacks}, marks.FaultShared, StepRecord},
		"no other to compare a rejection with":        {given(missedDeadline, rejected), world{}, marks.FaultShared, StepRecord},
		"another has it, and was not probed":          {given(missedDeadline), world{waits: lacks, fleet: healthyNodes(3, "")}, "", StepProbe},
		"the probe fails":                             {given(missedDeadline, rejected), world{probes: []workerpod.Observation{probe("m0", ended(attempt.Failed))}, fleet: healthyNodes(3, "")}, marks.FaultShared, StepRecord},
		"the probe proves nothing":                    {given(missedDeadline, rejected), world{probes: []workerpod.Observation{probe("m0", ended(attempt.Inconclusive))}, fleet: healthyNodes(3, "")}, "", StepProbe},
		"the probe is awaited":                        {given(missedDeadline), world{waits: lacks, probes: []workerpod.Observation{probe("m0")}, fleet: healthyNodes(3, "")}, "", StepNone},
		"the probe was made before the deadline":      {given(missedDeadline, rejected), world{probes: []workerpod.Observation{probe("m0", ended(attempt.Passed), seenFor(2*time.Hour))}, fleet: healthyNodes(3, "")}, "", StepProbe},
		"the probe ran other checks":                  {given(missedDeadline, rejected), world{probes: []workerpod.Observation{probe("m0", ended(attempt.Passed), otherChecks)}, fleet: healthyNodes(3, "")}, "", StepProbe},
		"the probe is refused":                        {given(missedDeadline, rejected), world{probeRefused: "quota", fleet: healthyNodes(3, "")}, marks.FaultShared, StepRecord},
		"just after it was shared":                    {given(missedDeadline, rejected, blamed(marks.FaultShared, time.Hour)), fine, marks.FaultUnclear, StepRecord},
		"after an outage that a failed attempt saw":   {given(missedDeadline, rejected, heldBy(GuardControlProbe)), fine, marks.FaultUnclear, StepRecord},
		"and once more":                               {given(missedDeadline, rejected, blamed(marks.FaultUnclear, time.Hour)), fine, marks.FaultNode, StepRecord},
		"before the deadline":                         {given(missedDeadline, rejected, func(in *Input) { in.Node.Created = now.Add(-time.Minute) }), fine, "", StepRecord},
		"before a new leader granted an attempt":      {given(missedDeadline, rejected, func(in *Input) { in.NeedsVerificationSince = now.Add(-time.Minute) }), fine, "", StepRecord},
		"deletion is off":                             {given(missedDeadline, rejected, func(in *Input) { in.Config.NodeManagement.DeleteFailedNodes = false }), fine, "", StepRecord},
		"the kubelet is gone":                         {given(missedDeadline, rejected, lost), fine, "", StepRecord},
		"it was rejected before a reboot":             {given(missedDeadline, with(pod(1, inconclusively(attempt.ReasonKubeletRejected), fromBoot))), fine, "", StepRecord},
		"a check gives the reason":                    {given(missedDeadline, with(pod(1, ended(attempt.Inconclusive), func(o *workerpod.Observation) { o.Attempt.Result.Reason = attempt.ReasonKubeletRejected }))), fine, "", StepRecord},
		"an image that cannot be pulled":              {given(missedDeadline, hasImage, with(pod(1, imageMissing))), fine, "", StepRecord},
		"a slot is missing":                           {given(missedDeadline), world{full: true, fleet: healthyNodes(3, ""), probes: passing}, "", StepNone},
		"a slot is missing for the probe":             {given(missedDeadline), world{waits: lacks, full: true, fleet: healthyNodes(3, "")}, "", StepNone},
		"no room":                                     {given(missedDeadline, with(pod(1, stuck, unschedulable(time.Minute)))), fine, "", StepRecord},
		"somebody deleted the worker":                 {given(missedDeadline, with(pod(1, stuck, terminating))), fine, "", StepRecord},
		"the worker vanished":                         {given(missedDeadline, func(in *Input) { in.VanishedAttempt = 1 }), fine, "", StepRecord},
		"exit 2":                                      {ends(attempt.ReasonConfigRefused), fine, "", StepRecord},
		"exit 3":                                      {ends(attempt.ReasonClientSetup), fine, "", StepRecord},
		"exit 4":                                      {ends(attempt.ReasonUndecided), fine, "", StepRecord},
		"exit 10":                                     {ends(attempt.ReasonInternalError), fine, "", StepRecord},
		"any other code":                              {ends(attempt.ReasonUnknownExit), fine, "", StepRecord},
		"out of memory":                               {ends(attempt.ReasonOOMKilled), fine, "", StepRecord},
		"evicted":                                     {ends(attempt.ReasonEvicted), fine, "", StepRecord},
		"an init container":                           {ends(attempt.ReasonInitFailed), fine, "", StepRecord},
		"a container that cannot be made":             {ends(attempt.ReasonContainerConfig), fine, "", StepRecord},
		"started late":                                {ends(attempt.ReasonStartedLate), fine, "", StepRecord},
		"the node shut down":                          {ends(attempt.ReasonNodeShutdown), fine, "", StepRecord},
		"known for ten minutes, with no other probe":  {given(missedDeadline, rejected, blamed(marks.FaultNode, time.Minute)), world{}, marks.FaultNode, StepRecord},
		"known to be shared, with no other probe":     {given(missedDeadline, rejected, blamed(marks.FaultShared, time.Minute)), fine, marks.FaultShared, StepRecord},
		"what was shared is written once":             {given(missedDeadline, blamed(marks.FaultShared, time.Hour), func(in *Input) { in.Node.Record.DeadlineCause.Message = noControlNode }), world{waits: lacks}, "", StepNone},
		"prerequisites known to lack, asked no more":  {given(missedDeadline, blamed(marks.FaultShared, time.Minute)), world{waits: lacks, fleet: healthyNodes(3, "")}, "", StepNone},
		"the guard that held goes on to decide":       {given(missedDeadline, blamed(marks.FaultNode, time.Hour), heldBy(GuardMaxUnhealthy)), world{waits: lacks, probes: passing, fleet: healthyNodes(3, "")}, marks.FaultNode, StepRecord},
		"what was found is void after another reason": {given(missedDeadline, with(pod(1, inconclusively(attempt.ReasonImagePull))), blamed(marks.FaultNode, time.Minute)), fine, "", StepRecord},
	} {
		t.Run(name, func(t *testing.T) {
			plan, _ := ask(t, tc.in, tc.world)
			if plan.Step != tc.step {
				t.Fatalf("step %q, want %q: %+v", plan.Step, tc.step, plan)
			}
			got := ""
			if o := plan.Change.Record.DeadlineCause; o != nil {
				if got = o.Fault; o.Message == "" {
					t.Error("no word on why")
				}
			}
			if got != tc.fault {
				t.Errorf("fault %q, want %q: %+v", got, tc.fault, plan.Change.Record.DeadlineCause)
			}
			r, before := plan.Change.Record, tc.in.Node.Record
			if plan.Step == StepRecord && (plan.Recorded != nil && r.LastOutcome != attempt.Inconclusive || r.Attempts != 0 || plan.Recorded == nil && r.Sequence != before.Sequence) {
				t.Errorf("records %+v", r)
			}
			if held := before.Held; tc.fault == marks.FaultNode && held != r.Held || tc.fault == marks.FaultShared && r.Held != "" {
				t.Errorf("held by %q, was by %q", r.Held, held)
			}
		})
	}
}

// A cause that lies on the node leads to its deletion through all guards, as long as the finding is recent and still
// true.
func TestRemediatePastDeadline(t *testing.T) {
	own := blamed(marks.FaultNode, time.Minute)
	rejected := func(change ...func(*Input)) Input {
		return puzzling(3, append([]func(*Input){missedDeadline, own, lastReason(attempt.ReasonKubeletRejected)}, change...)...)
	}
	lacking := world{waits: []Unmet{{Kind: "pods", Message: "a pod of the agent"}}, fleet: deletable().fleet}
	for name, tc := range map[string]struct {
		in    Input
		world world
		step  Step
		held  string
	}{
		"rejected":                           {rejected(), deletable(), StepDelete, ""},
		"rejected, and due":                  {rejected(due), deletable(), StepDelete, ""},
		"never started":                      {puzzling(3, missedDeadline, own, lastReason(attempt.ReasonStartTimeout)), deletable(), StepDelete, ""},
		"lacks what others have":             {given(missedDeadline, own), lacking, StepDelete, ""},
		"lacks it no more":                   {given(missedDeadline, own), deletable(), StepStart, ""},
		"lacks it no more, its end was near": {given(missedDeadline, own, func(in *Input) { in.Node.Record.Deletion = &marks.Deletion{Kind: owner.Node, Name: "n", Time: now} }), deletable(), StepRecord, ""},
		"opted out":                          {rejected(optOut), deletable(), StepRecord, GuardDoNotDelete},
		"it was verified once": {rejected(func(in *Input) {
			in.Node.Record.VerifiedTime, in.Node.Record.Since = ago(48*time.Hour), ago(2*time.Hour)
		}), deletable(),
			StepRecord, GuardNeverVerifiedOnly},
		"ordinary pods":                     {given(missedDeadline, own), world{waits: lacking.waits, fleet: lacking.fleet, workloads: Workloads{Names: []string{"a/b"}}}, StepRecord, GuardSparePods},
		"held, and due: it is tried":        {rejected(due, heldBy(GuardSparePods)), deletable(), StepStart, ""},
		"held before its first attempt":     {given(missedDeadline, own, heldBy(GuardSparePods)), lacking, StepDelete, ""},
		"long ago":                          {rejected(blamed(marks.FaultNode, time.Hour), due), deletable(), StepStart, ""},
		"in the boot before":                {rejected(due, func(in *Input) { in.Node.Record.DeadlineCause.BootID = "b0" }), deletable(), StepStart, ""},
		"of a shared cause":                 {rejected(due, blamed(marks.FaultShared, time.Minute)), deletable(), StepStart, ""},
		"another cause came after it":       {puzzling(3, missedDeadline, own, due), deletable(), StepStart, ""},
		"the kubelet is gone":               {rejected(lost), deletable(), StepNone, ""},
		"a new leader, which knows nothing": {rejected(due, func(in *Input) { in.NeedsVerificationSince = now }), deletable(), StepStart, ""},
		"deletion is off":                   {rejected(due, func(in *Input) { in.Config.NodeManagement.DeleteFailedNodes = false }), deletable(), StepStart, ""},
	} {
		t.Run(name, func(t *testing.T) {
			plan, _ := ask(t, tc.in, tc.world)
			if plan.Step != tc.step || plan.Change.Record.Held != tc.held && plan.Step == StepRecord {
				t.Fatalf("step %q, held by %q; want %q, %q", plan.Step, plan.Change.Record.Held, tc.step, tc.held)
			}
			if plan.Step == StepDelete && (plan.Change.Gate != gateClose || !strings.Contains(plan.Events[0].Message, "not verified within 1h0m0s: what it was")) {
				t.Errorf("%+v", plan)
			}
			if tc.held == "" {
				return
			}
			// It is written once.
			tc.in.Node.Record, tc.in.Node.Gated = plan.Change.Record, true
			again, _ := ask(t, tc.in, tc.world)
			if again.Step != StepNone || reasonOf(again.Condition) != marks.ReasonRemediationHeld {
				t.Errorf("once more: %q, %+v", again.Step, again.Condition)
			}
			if left := maxFailureAge - time.Minute; again.RequeueAfter <= 0 || again.RequeueAfter > left {
				t.Errorf("looks again in %s, and the cause counts for %s more", again.RequeueAfter, left)
			}
		})
	}
}
