package decide_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world/termination"
)

// The nodes of the model: one that joins, and one that was verified before, for control probes.
const (
	joining  = "joining"
	verified = "verified"
)

const foreignTaint = "example.com/foreign"

// model is a cluster of two nodes: the objects of the API server, the controller's caches of them, the time, and the
// other inputs of a decision. The test's actions play kubelets and all other programs.
type model struct {
	failed  func(format string, a ...any) // ends the test
	reached map[string]int                // steps, and the reasons of conditions and of attempts
	cfg     *config.Config
	view    *controller.View
	now     time.Time

	nodes map[string]*corev1.Node
	pods  map[string]*corev1.Pod
	// cached are the caches. Caches that lag are not updated before a decision.
	cached            caches
	nodesLag, podsLag bool
	unmet, full       bool // prerequisites, no slot
	refuses           bool // the API server takes no pod
	busy              bool // the joining node runs an ordinary pod
	ledger            []ledger.Entry
	version, serial   int
	gone              int             // nodes that were deleted
	passes            map[string]bool // UID, boot and checks for which a pod ended with 0
	waits             map[string]time.Duration
	burnIn            string // what becomes of init containers by themselves: "ends", "fails" or "hangs"
	// hung are pods that no longer start or end by themselves. Those that never started stay terminating.
	hung     map[string]bool
	recorded []decide.Event // of the writes of records
	fights   bool           // another writer puts the taint back after each release
}

type caches struct {
	nodes map[string]*corev1.Node
	pods  map[string]*corev1.Pod
}

func newModel(failed func(string, ...any), reached map[string]int, settings string) *model {
	m := &model{failed: failed, reached: reached, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{},
		passes: map[string]bool{}, waits: map[string]time.Duration{}, hung: map[string]bool{}, burnIn: "ends", cached: caches{map[string]*corev1.Node{}, map[string]*corev1.Pod{}}}
	var err error
	if m.cfg, err = config.Parse([]byte(settings), "model"); err != nil {
		panic(err)
	}
	b, err := workerpod.NewBuilder(m.cfg, "ns", "image:1")
	if err != nil {
		panic(err)
	}
	m.view = &controller.View{Config: m.cfg, Cache: m, Builder: b, OwnerTerminating: func(*corev1.Node, marks.Facts) string { return "" }}
	m.restart()
	control := m.join(verified)
	control.Spec.Taints = nil
	control.Labels["node-ready/verified"] = "true"
	at := m.now
	control.Annotations[marks.AnnotationRecord] = marks.Record{NodeUID: string(control.UID), BootID: "b1", Checks: b.Checks(""), Sequence: 1, LastOutcome: attempt.Passed, LastTime: &at, VerifiedTime: &at}.Encode()
	m.join(joining)
	return m
}

// join creates a node, gated as a kubelet registers it.
func (m *model) join(name string) *corev1.Node {
	m.serial++
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprint("node-", m.serial)), CreationTimestamp: metav1.NewTime(m.now), Labels: map[string]string{}, Annotations: map[string]string{}}}
	n.Spec.Taints = []corev1.Taint{{Key: foreignTaint, Effect: corev1.TaintEffectNoSchedule}, {Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	n.Status.NodeInfo.BootID = "b1"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	m.nodes[name] = n
	m.touch(n)
	return n
}

func (m *model) touch(n *corev1.Node) {
	m.version++
	n.ResourceVersion = fmt.Sprint(m.version)
}

// restart plays a new leader: the observations of the last one are lost, and its caches are up to date.
func (m *model) restart() {
	m.view.Tracker = controller.NewTracker(func() time.Time { return m.now }, false)
	m.cached = caches{map[string]*corev1.Node{}, map[string]*corev1.Pod{}}
	m.sync(true)
}

// sync brings the caches up to date, as watches do.
func (m *model) sync(all bool) {
	if all || !m.nodesLag {
		m.cached.nodes = map[string]*corev1.Node{}
		for name, n := range m.nodes {
			m.cached.nodes[name] = n.DeepCopy()
			m.cached.nodes[name].ManagedFields = nil // as the controller's cache strips them
		}
	}
	if !all && m.podsLag {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m.cached.pods)) {
		if p := m.cached.pods[name]; m.pods[name] == nil || m.pods[name].UID != p.UID {
			m.view.Tracker.PodGone(workerpod.Observe(p), p)
			delete(m.cached.pods, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		m.cached.pods[name] = m.pods[name].DeepCopy()
		m.view.Tracker.ObservePod(m.cached.pods[name])
	}
}

// Get is a read of the cache.
func (m *model) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	panic("a view lists")
}

// List is a read of the cache's pods by one of its indexes.
func (m *model) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	by := o.FieldSelector.Requirements()[0]
	label := map[string]string{"worker/node-uid": workerpod.LabelNodeUID, "worker/probe-group": workerpod.LabelProbeGroup}[by.Field]
	for _, name := range slices.Sorted(maps.Keys(m.cached.pods)) {
		if p := m.cached.pods[name]; p.Labels[label] == by.Value {
			list.(*corev1.PodList).Items = append(list.(*corev1.PodList).Items, *p)
		}
	}
	return nil
}

func (m *model) gather(n *corev1.Node) decide.Input {
	in, err := m.view.Gather(context.Background(), n)
	if err != nil {
		panic(err)
	}
	return in
}

// live reads pods and nodes from the API server.
type live struct{ *model }

func (l live) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *corev1.Node:
		if n := l.nodes[key.Name]; n != nil {
			n.DeepCopyInto(into)
			return nil
		}
	case *corev1.Pod:
		if p := l.pods[key.Name]; p != nil {
			p.DeepCopyInto(into)
			return nil
		}
	}
	return apierrors.NewNotFound(corev1.Resource("objects"), key.Name)
}

// List lists the pods of a node.
func (l live) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	for _, name := range slices.Sorted(maps.Keys(l.pods)) {
		if p := l.pods[name]; o.LabelSelector.Matches(labels.Set(p.Labels)) {
			list.(*corev1.PodList).Items = append(list.(*corev1.PodList).Items, *p)
		}
	}
	return nil
}

// refreshed is the node and gather with what the API server has. It reports whether the pods are complete: the next
// sync shows a pod that is gone.
func (m *model) refreshed(n *corev1.Node) (*corev1.Node, decide.Input, bool) {
	now, in, err := m.view.Fresh(context.Background(), live{m}, n)
	switch {
	case errors.Is(err, controller.ErrNotShown):
		m.waits[n.Name] = time.Second
		return n, in, false
	case err != nil:
		panic(err)
	}
	return now, in, true
}

// reconcile decides about a node once, from its caches, and acts. It reports whether the cluster changed.
func (m *model) reconcile(name string) bool {
	m.sync(false)
	delete(m.waits, name)
	for woken := true; woken; {
		_, woken = m.view.Tracker.NextWoken()
	}
	n := m.cached.nodes[name]
	if n == nil {
		m.view.Tracker.NodeGone(name)
		return false
	}
	remediated := m.remediate(name)
	for try := 0; try < 8; try++ {
		changed, again := m.step(n, try > 0)
		if !again {
			return changed || remediated
		}
		if n = m.nodes[name]; n == nil {
			return false
		}
	}
	m.failed("%s: eight decisions in a row were overtaken, and nobody else writes", name)
	return false
}

func aboutCondition(in decide.Input, ev decide.Evidence, now time.Time) decide.Plan {
	condition, _ := decide.Remediation(in, ev, now)
	return condition
}

// remediate does the same with the condition that asks for remediation as the remediation reconciler. It reports
// whether it changed the node.
func (m *model) remediate(name string) bool {
	n := m.nodes[name]
	if n == nil {
		return false
	}
	in, ev := m.gather(n), decide.Evidence{}
	loaders := decide.Loaders{decide.NeedFresh: func(decide.Plan) error { ev.Fresh = true; return nil }}
	for _, need := range []decide.Need{decide.NeedLedger, decide.NeedCounts, decide.NeedWorkloads, decide.NeedOwner} {
		loaders[need] = func(decide.Plan) error { m.load(&ev, need, in); return nil }
	}
	plan, err := decide.ResolveWith(aboutCondition, &in, &ev, func() time.Time { return m.now }, loaders)
	if err != nil {
		m.failed("%s", err)
	}
	want := m.cfg.NodeManagement.Remediation.Condition
	switch m.reached[string(plan.Step)]++; plan.Step {
	case decide.StepSetCondition:
		if r := in.Node.Record; r.Attempts < m.cfg.Reconciliation.MaxRetries || r.Checks != in.Checks || r.BootID != in.Node.BootID || r.LastOutcome != attempt.Failed {
			m.failed("%s gets a condition that asks for remediation: %+v", name, in.Node)
		}
		if !decide.RemediationEntered(in, *ev.Ledger, plan.Target.Kind, m.now) {
			m.ledger = append(m.ledger, ledger.Entry{Time: metav1.NewTime(m.now), UID: in.Node.UID, Kind: plan.Target.Kind})
		}
		if len(plan.RemoveConditions) > 0 && !m.patch(n, marks.RemoveConditions(n, plan.RemoveConditions), strategic) {
			m.failed("%s: nothing to remove: %v", name, plan.RemoveConditions)
		}
		return m.patch(n, marks.SetCondition(n, corev1.NodeCondition{Type: want.Type, Status: want.Status, Reason: marks.ReasonVerificationFailed}), strategic)
	case decide.StepRemoveConditions:
		if !m.patch(n, marks.RemoveConditions(n, plan.RemoveConditions), strategic) {
			m.failed("%s: nothing to remove: %v", name, plan.RemoveConditions)
		}
		return true
	}
	return false
}

// forgeCondition sets a condition that asks for remediation, as anybody may who writes the node's status.
func forgeCondition(n *corev1.Node) {
	for i, c := range n.Status.Conditions {
		if c.Reason == marks.ReasonVerificationFailed {
			n.Status.Conditions = slices.Delete(n.Status.Conditions, i, i+1)
			return
		}
	}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "node-ready/RemediationRequired", Status: corev1.ConditionTrue, Reason: marks.ReasonVerificationFailed})
}

// rounds bounds how often a decision may ask for evidence: once for each need, and once more after the node was read.
const rounds = 24

func (m *model) step(n *corev1.Node, fresh bool) (changed, again bool) {
	in := m.gather(n)
	var all bool
	if fresh {
		if n, in, all = m.refreshed(n); !all {
			return false, false
		}
	}
	ev := decide.Evidence{Fresh: fresh}
	asked, now, loaders := 0, func() time.Time { return m.now }, decide.Loaders{}
	for _, need := range []decide.Need{decide.NeedPrerequisites, decide.NeedSlot, decide.NeedProbes, decide.NeedFleet,
		decide.NeedFresh, decide.NeedWarning, decide.NeedLedger, decide.NeedCounts, decide.NeedOccupants,
		decide.NeedWorkloads, decide.NeedOwner} {
		loaders[need] = func(plan decide.Plan) error {
			if asked++; asked > rounds {
				m.failed("%s: still asks for %s", n.Name, need)
			}
			m.same(in, ev, plan)
			if handedOver(need) && in.Node.Record.Held != "" && !plan.EndsPods() {
				m.staysHandedOver(in, ev, plan)
			}
			if need != decide.NeedFresh {
				m.load(&ev, need, in)
				return nil
			}
			if m.nodes[n.Name] == nil {
				return decide.ErrStop
			}
			if n, in, all = m.refreshed(n); !all {
				return decide.ErrStop
			}
			return nil
		}
	}
	plan, err := decide.Resolve(&in, &ev, now, loaders)
	if err != nil {
		m.failed("%s", err)
	}
	if plan.Need != decide.NeedNothing {
		return false, false
	}
	if broken := decide.BrokenRules(in, ev, plan, m.now); len(broken) > 0 {
		m.failed("%s: %q\nnode %+v\npods %+v\nevidence %+v\nplan %+v", n.Name, broken, in.Node, in.Pods, ev, plan)
	}
	m.same(in, ev, plan)
	m.shape(in, plan)
	if m.reached[string(plan.Step)]++; plan.Condition != nil {
		m.reached[plan.Condition.Reason]++
	}
	if plan.Recorded != nil {
		m.reached[plan.Recorded.Result.Reason]++
	}
	_, quiet := decide.Quiet(in, m.now)
	m.reached["state "+string(decide.StateOf(in, m.now))]++
	if changed, again = m.act(n, in, plan); quiet && len(in.Pods) == 0 && changed {
		m.failed("%s: the node is quiet, and its decision changes something: %+v", n.Name, plan)
	}
	return changed, again
}

// same checks that a decision gives the same result twice.
func (m *model) same(in decide.Input, ev decide.Evidence, plan decide.Plan) {
	if !reflect.DeepEqual(plan, decide.Next(in, ev, m.now)) {
		m.failed("%s: decided otherwise the second time", in.Node.Name)
	}
}

// rests counts in reached the looks after which the node reconciler has no timer for a held node.
const rests = "rests"

// handedOver reports whether the node reconciler hands a decision over that needs this evidence. These are the needs of
// guards, except probes (TestRemediationsAreHandedOver in internal/controller/node).
func handedOver(need decide.Need) bool {
	return need != decide.NeedProbes && slices.ContainsFunc(decide.Guards(), func(g decide.Guard) bool {
		return slices.Contains(g.Needs, need)
	})
}

// staysHandedOver checks that the passing of time alone does not bring the decision about a held node back to the node
// reconciler before RequeueAfter: it has no other timer for such a node.
func (m *model) staysHandedOver(in decide.Input, ev decide.Evidence, plan decide.Plan) {
	until := time.Hour
	if plan.RequeueAfter > 0 {
		until = plan.RequeueAfter
	}
	m.reached[rests]++
	for _, after := range []time.Duration{until / 2, until - time.Millisecond} {
		if later := decide.Next(in, ev, m.now.Add(after)); !handedOver(later.Need) {
			m.failed("%s: hands over, looks again in %s, and decides after %s:\n%+v\n%+v", in.Node.Name, plan.RequeueAfter, after, later, in.Node)
		}
	}
}

func (m *model) load(ev *decide.Evidence, need decide.Need, in decide.Input) {
	wait := map[bool][]decide.Unmet{true: {{Kind: "pods", Name: "agent", Message: "the agent"}}}
	room, waits := !m.full, wait[m.unmet]
	switch need {
	case decide.NeedPrerequisites:
		ev.Unmet = &waits
	case decide.NeedSlot:
		ev.Slot = &room
	case decide.NeedProbes:
		probes, err := m.view.Probes(context.Background(), decide.ProbeGroups(in)...)
		if err != nil {
			panic(err)
		}
		ev.Probes = &probes
	case decide.NeedFleet, decide.NeedCounts:
		fleet := []decide.NodeSummary{}
		for _, name := range slices.Sorted(maps.Keys(m.cached.nodes)) {
			fleet = append(fleet, decide.SummaryOf(m.view.Observe(m.cached.nodes[name])))
		}
		counts := decide.CountNodes(fleet, m.ledger, in.Config.NodeManagement.Remediation.Window.Duration, m.now)
		ev.Fleet, ev.Counts = &fleet, &counts
	case decide.NeedWarning:
		ev.Warning = new("")
	case decide.NeedLedger:
		ev.Ledger = &decide.Ledger{Contents: ledger.Contents{CompleteSince: m.now.Add(-48 * time.Hour), Entries: m.ledger}}
	case decide.NeedOccupants, decide.NeedWorkloads:
		ev.Workloads = &decide.Workloads{}
		if m.busy && in.Node.Name == joining {
			ev.Workloads.Names = []string{"default/app"}
		}
	case decide.NeedOwner:
		ev.Owner = ptr.To(owner.OfNode(in.Node.Name, in.Node.UID))
	default:
		m.failed("asks for %s, which nobody knows", need)
	}
}

// shape checks that a plan takes at most one step, and has exactly the fields that belong to that step.
func (m *model) shape(in decide.Input, p decide.Plan) {
	writes := p.Step == decide.StepRecord || p.Step == decide.StepDelete
	if !writes && !reflect.DeepEqual(p.Change, marks.Change{}) || (p.Number != 0) != (p.Step == decide.StepStart) || p.Recorded != nil && p.Step != decide.StepRecord ||
		(p.Target.Name != "") != (p.Step == decide.StepDelete) || p.RequeueAfter < 0 || p.Condition != nil && p.ClearCondition {
		m.failed("%s: step %q with %+v", in.Node.Name, p.Step, p)
	}
	seen := map[string]bool{}
	for _, o := range slices.Concat(p.Delete, p.Keep) {
		if o.Terminating || seen[o.UID] && slices.ContainsFunc(p.Keep, func(k workerpod.Observation) bool { return k.UID == o.UID && k.Recorded }) {
			m.failed("%s: pod %s is deleted or kept twice", in.Node.Name, o.Name)
		}
		seen[o.UID] = true
	}
}

// act does the same with a plan as the node reconciler.
func (m *model) act(n *corev1.Node, in decide.Input, p decide.Plan) (changed, again bool) {
	switch p.Step {
	case decide.StepStart:
		t := workerpod.Target{Name: in.Node.Name, UID: in.Node.UID, BootID: in.Node.BootID, Gated: in.Closed(), Request: decide.PendingRequest(in.Node.Record)}
		if unseen := m.pods[workerpod.VerifyName(t, in.Node.Record.Sequence)]; in.Node.Record.LastReason == attempt.ReasonPodRefused && unseen != nil && workerpod.Observe(unseen).Occupies {
			if unseen.DeletionTimestamp != nil {
				return false, false
			}
			unseen.DeletionTimestamp = &metav1.Time{Time: m.now}
			return true, false
		}
		pod := m.view.Builder.Verify(t, in.Profile, p.Number, p.Scheduling)
		switch have := m.pods[pod.Name]; {
		case m.refuses:
			return m.record(n, in, decide.PodRefused(in, p.Number, attempt.ReasonPodRefused, "a quota", m.now))
		case have == nil:
			m.create(pod)
			changed = true
		case have.Annotations[workerpod.AnnotationRecorded] == "true": // left from before somebody removed the record
			delete(m.pods, pod.Name)
			return true, true
		}
	case decide.StepProbe:
		if pod := m.view.Builder.Probe(p.Probe.On, in.Profile, p.Probe.Subject, p.Probe.Group); m.pods[pod.Name] == nil {
			m.create(pod)
			changed = true
		}
	case decide.StepRecord:
		return m.record(n, in, p)
	case decide.StepDelete:
		if ok := m.write(n, p.Change); !ok {
			return false, true
		}
		m.ledger = append(m.ledger, ledger.Entry{Time: metav1.NewTime(m.now), UID: in.Node.UID, Kind: p.Target.Kind})
		m.remove(n.Name)
		return true, false
	}
	wait := p.RequeueAfter
	write, later := m.view.Tracker.ConditionDue(in, p)
	var patch []byte
	if p.ClearCondition {
		patch = marks.RemoveCondition(in.Node.UID)
	} else if write {
		patch = p.Condition.Patch(in.Node.UID, in.Node.Condition)
	}
	if live := m.nodes[n.Name]; patch != nil && live != nil && string(live.UID) == in.Node.UID {
		current := live.ResourceVersion == n.ResourceVersion
		if differs := m.patch(live, patch, strategic); !differs && current {
			m.failed("%s: a condition is written that is there already: %s", n.Name, patch)
		} else {
			changed = changed || differs
		}
	}
	for _, o := range p.Keep {
		if pod := m.pods[o.Name]; pod != nil && string(pod.UID) == o.UID && pod.Annotations[workerpod.AnnotationRecorded] == "" {
			pod.Annotations[workerpod.AnnotationRecorded] = "true"
			changed = true
		}
	}
	for _, o := range p.Delete {
		pod := m.pods[o.Name]
		if pod == nil || string(pod.UID) != o.UID || pod.DeletionTimestamp != nil {
			continue
		}
		changed = true
		// Somebody removes a record while the cache still has it. An attempt with the same number may have ended by then.
		unlucky := o.Attempt.Result != nil && o.Attempt.Number <= in.Node.Record.Sequence
		if live := m.view.Observe(m.nodes[n.Name]); o.Purpose == workerpod.PurposeVerify && live.Node.UID == in.Node.UID && o.Attempt.Number == live.Node.Record.Sequence+1 && !o.Recorded &&
			!unlucky && decide.Eligible(live) && decide.NeedsVerification(live, m.now) {
			m.failed("%s is deleted, and its result is not recorded", o.Name)
		}
		if !o.Occupies || in.Node.Lost && o.State == workerpod.Pending {
			delete(m.pods, o.Name)
		} else {
			pod.DeletionTimestamp = &metav1.Time{Time: m.now}
		}
	}
	for _, o := range p.ForceDelete {
		if pod := m.pods[o.Name]; pod != nil && string(pod.UID) == o.UID {
			if live := workerpod.Observe(pod); live.HasRunningContainer || !live.Terminating {
				m.failed("%s is deleted without grace, and it is %s, terminating: %v", o.Name, live.State, live.Terminating)
			}
			delete(m.pods, o.Name)
			m.reached["force"]++
			changed = true
		}
	}
	if later > 0 && (wait == 0 || later < wait) {
		wait = later
	}
	m.waits[n.Name] = wait
	return changed, false
}

func (m *model) record(n *corev1.Node, in decide.Input, p decide.Plan) (changed, again bool) {
	if p.Change.Gate == marks.GateOpen && !p.Change.KeepRecord && !p.ReleasesUnverified() && !m.passes[passOf(in.Node.UID, in.Node.BootID, in.Checks)] {
		m.failed("%s is released, and no worker of this node, boot and checks has passed: %+v", n.Name, p.Change.Record)
	}
	if p.ReleasesUnverified() {
		m.reached["released unverified"]++
	}
	if !m.write(n, p.Change) {
		return false, true
	}
	if p.Recorded != nil && p.Recorded.Result.Outcome == attempt.Passed {
		m.view.Tracker.GroupPassed(in)
	}
	m.waits[n.Name], m.recorded = p.RequeueAfter, append(m.recorded, p.Events...)
	if p.TakenBack != "" {
		m.reached["taken back"]++
	}
	if p.Releases() && m.fights {
		taintsBack(m.nodes[n.Name])
		m.touch(m.nodes[n.Name])
	}
	return true, false
}

func passOf(uid, boot, checks string) string { return uid + " " + boot + " " + checks }

// write applies a change as the API server does. It refuses the change if another node has the name by now.
func (m *model) write(n *corev1.Node, c marks.Change) bool {
	live := m.nodes[n.Name]
	if live == nil || live.UID != n.UID || live.ResourceVersion != n.ResourceVersion {
		return false
	}
	before, foreign := sequence(live), slices.DeleteFunc(slices.Clone(live.Spec.Taints), m.cfg.Vocabulary().Gates)
	if !m.patch(live, c.Patch(n, m.cfg.Vocabulary()), jsonpatch.MergePatch) {
		m.failed("%s: a write that changes nothing: %+v", n.Name, c)
	}
	if after := slices.DeleteFunc(slices.Clone(live.Spec.Taints), m.cfg.Vocabulary().Gates); !slices.Equal(foreign, after) {
		m.failed("%s: foreign taints %v became %v", n.Name, foreign, after)
	}
	if after := sequence(live); after < before || after > before+1 {
		m.failed("%s: attempt %d is recorded after %d", n.Name, after, before)
	}
	return true
}

func sequence(n *corev1.Node) int32 { return marks.Observe(n, marks.Vocabulary{}).Record.Sequence }

func strategic(original, patch []byte) ([]byte, error) {
	return strategicpatch.StrategicMergePatch(original, patch, corev1.Node{})
}

// patch applies a patch of a node, and reports whether that changed anything.
func (m *model) patch(n *corev1.Node, patch []byte, apply func(original, patch []byte) ([]byte, error)) bool {
	original, err := json.Marshal(n)
	if err != nil {
		panic(err)
	}
	after, err := apply(original, patch)
	if err != nil {
		m.failed("%s does not apply: %v", patch, err)
	}
	patched := &corev1.Node{}
	if err := json.Unmarshal(after, patched); err != nil {
		m.failed("%s makes no node: %v", patch, err)
	}
	if reread, err := json.Marshal(patched); err == nil && string(reread) == string(original) {
		return false
	}
	for _, of := range []*map[string]string{&patched.Labels, &patched.Annotations} {
		if *of == nil {
			*of = map[string]string{}
		}
	}
	*n = *patched
	m.touch(n)
	return true
}

// create stores a pod, bound to its node.
func (m *model) create(pod *corev1.Pod) {
	if pod.Labels[workerpod.LabelPurpose] == workerpod.PurposeVerify {
		number := workerpod.Observe(pod).Attempt.Number
		for _, other := range m.pods {
			// Somebody removed the record, so attempts count from 1 again, and the cache does not show the last attempt's pod.
			again := workerpod.Observe(other).Attempt.Number >= number && m.cached.pods[other.Name] == nil
			if o := workerpod.Observe(other); !again && o.Purpose == workerpod.PurposeVerify && o.Occupies && other.Labels[workerpod.LabelNodeUID] == pod.Labels[workerpod.LabelNodeUID] {
				m.failed("%s starts beside %s", pod.Name, other.Name)
			}
		}
		live := m.nodes[pod.Annotations[workerpod.AnnotationNode]]
		if o := workerpod.Observe(pod); string(live.UID) == pod.Labels[workerpod.LabelNodeUID] && o.Attempt.Number <= sequence(live) {
			m.failed("%s starts, and attempt %d is recorded", pod.Name, sequence(live))
		}
	}
	m.serial++
	pod.UID, pod.CreationTimestamp, pod.Spec.NodeName = types.UID(fmt.Sprint("pod-", m.serial)), metav1.NewTime(m.now), pod.Annotations[workerpod.AnnotationNode]
	pod.Status.Phase = corev1.PodPending
	m.pods[pod.Name] = pod
	delete(m.hung, pod.Name)
}

// remove deletes a node with its pods, as the garbage collector does, and lets another one join under its name.
func (m *model) remove(name string) {
	m.gone++
	for pod, p := range m.pods {
		if p.Labels[workerpod.LabelNodeUID] == string(m.nodes[name].UID) {
			delete(m.pods, pod)
		}
	}
	delete(m.nodes, name)
	m.join(name)
}

// ready sets the Ready condition of the joining node, as its kubelet does, or the node lifecycle controller in its
// place.
func (m *model) ready(s corev1.ConditionStatus) {
	n := m.nodes[joining]
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == corev1.NodeReady {
			n.Status.Conditions[i].Status = s
		}
	}
	m.touch(n)
}

// accuse has a monitoring agent, or a person, report a problem of the joining node, or that it is over.
func (m *model) accuse() {
	const deadlock = "KernelDeadlock"
	n := m.nodes[joining]
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == deadlock })
	if i < 0 {
		i = len(n.Status.Conditions)
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: deadlock})
	}
	c := &n.Status.Conditions[i]
	c.LastTransitionTime = metav1.NewTime(m.now)
	if m.serial++; m.serial%2 == 0 {
		c.LastTransitionTime = metav1.Time{} // as a person sets it with kubectl patch
	}
	if c.Status == corev1.ConditionTrue {
		c.Status = corev1.ConditionFalse
	} else {
		c.Status = corev1.ConditionTrue
	}
	m.touch(n)
}

// starts makes a kubelet start the next container of the pod: its init container, then the worker.
func (m *model) starts(p *corev1.Pod) {
	p.Status.StartTime = cmp.Or(p.Status.StartTime, &metav1.Time{Time: m.now})
	if len(p.Spec.InitContainers) > len(p.Status.InitContainerStatuses) {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.InitContainers[0].Name, Started: ptr.To(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(m.now)}}}}
		return
	}
	m.initEnds(p, 0)
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: workerpod.Container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(m.now)}}}}
}

// initEnds has the pod's init container, if any, end with a code; a pod is never restarted.
func (m *model) initEnds(p *corev1.Pod, code int32) {
	if code != 0 {
		p.Status.Phase = corev1.PodFailed
	}
	for i := range p.Status.InitContainerStatuses {
		p.Status.InitContainerStatuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(m.now)}}
	}
}

// exits has the pod's worker end with a code.
func (m *model) exits(p *corev1.Pod, code int32) {
	p.Status.Phase = corev1.PodFailed
	if code == 0 {
		p.Status.Phase = corev1.PodSucceeded
		m.passes[passOf(p.Labels[workerpod.LabelNodeUID], p.Annotations[workerpod.AnnotationBootID], p.Annotations[workerpod.AnnotationChecks])] = true
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: workerpod.Container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Message: termination.Message(p.Annotations[workerpod.AnnotationNode], int(code)),
		StartedAt: metav1.NewTime(m.now.Add(-time.Second)), FinishedAt: metav1.NewTime(m.now)}}}}
}

// kubelets plays what happens to pods by itself. Deleted pods go, and others start and end. The joining node's pods end
// with the code, and probes with 0. It reports whether there was anything to do.
func (m *model) kubelets(code int32) bool {
	did := false
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		switch p, o := m.pods[name], workerpod.Observe(m.pods[name]); {
		case m.hung[name] && (p.DeletionTimestamp == nil || o.State == workerpod.Pending && !o.HasRunningContainer):
		case p.DeletionTimestamp != nil:
			delete(m.pods, name)
			did = true
		case o.InitContainer != "" && m.burnIn == "hangs":
		case o.InitContainer != "" && m.burnIn == "fails":
			m.initEnds(p, 1)
			did = true
		case o.State == workerpod.Pending:
			m.starts(p)
			did = true
		case o.State == workerpod.Running:
			m.exits(p, map[bool]int32{true: code}[p.Spec.NodeName == joining])
			did = true
		}
	}
	return did
}

// recover ends all faults, and removes the opt-outs that people set.
func (m *model) recover() {
	m.nodesLag, m.podsLag, m.unmet, m.full, m.refuses = false, false, false, false, false
	n := m.nodes[joining]
	maps.DeleteFunc(n.Annotations, func(k, _ string) bool {
		return k == marks.AnnotationSkip || strings.HasSuffix(k, "do-not-delete")
	})
	if _, ok := n.Labels[owner.LabelNodePool]; ok {
		n.Labels[owner.LabelRegistered] = "true"
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == leavingTaint })
	m.ready(corev1.ConditionTrue)
}

const leavingTaint = "ToBeDeletedByClusterAutoscaler"

// released reports whether the joining node, or its replacement, is released, its condition says so, and it owes nobody
// the answer to a request.
func (m *model) released() bool {
	in := m.gather(m.nodes[joining])
	passed := in.Node.Record.LastOutcome == attempt.Passed
	return !in.Node.Gated && !decide.NeedsVerification(in, m.now) && decide.PendingRequest(in.Node.Record) == "" && (!passed || in.Node.Condition != nil && in.Node.Condition.Reason == marks.ReasonChecksPassed)
}
