package controller

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Tracker remembers when this process first observed each state of a pod and of a node. Elapsed time is measured only
// on this process's clock, because other clocks may be minutes off. The times are hints. A new leader counts from its
// own first observation, which makes it slower but never wrong.
type Tracker struct {
	// Now is the clock.
	Now func() time.Time
	// DryRun: this is a dry run, in which the marks on pods are the only record.
	DryRun bool

	mu    sync.Mutex
	pods  map[types.UID]workerpod.FirstSeen
	asked map[string]asked // by the pod's name
	nodes map[string]*trackedNode
	// warnings are the last Warning events of pods that do not start; see Warnings.
	warnings map[types.UID]string
	// groups have nodes that wait for a pass, waiting are those by name, and toWake those that a pass made due.
	groups  map[string]*trackedGroup
	waiting map[string]*waitingNode
	toWake  []string
	// unwatched is why the API server refused the watch of worker pods last, and unwatchedAt when it did.
	unwatched   string
	unwatchedAt time.Time
}

// trackedNode is what was observed of the node with this UID.
type trackedNode struct {
	uid        types.UID
	vanished   attempt.Attempt
	dryRunDone bool
	needed     time.Time // since when it must be verified
	gateOpen   time.Time // when it was last seen without a gating taint, before or after it carried one
	// boots are the boot IDs that the node reported before, and when it stopped to.
	boots    []boot
	returned time.Time // when one of boots returned last; zero for never
	bootIDs  []string  // the one that returned and the one before it, sorted
	notReady time.Time // when it was last seen not Ready; zero for never
	woken    time.Time // when a pass of its group last made it due; zero for never
	// suspects are the conditions that make the node suspect, by their types.
	suspects map[corev1.NodeConditionType]suspect
	lost     bool // its Ready was Unknown when it was last seen
	wanted   decide.PendingCondition
	pod      refusal                // of the pod whose creation the API server refused last
	emitted  string                 // key of the last event that no write of the node guards
	timeline *decide.Timeline       // of a node that was seen to be created with the taint, until it is released
	waits    []decide.WaitingLabels // what the node waits for
	// refused are the reasons why the API server refuses requests about the node, by request.
	refused map[string]string
	failing map[string]failure // requests about the node that may succeed later
}

// failure is when a request failed first, and why.
type failure struct {
	since time.Time
	why   string
}

// boot is a boot ID, and a time.
type boot struct {
	id string
	at time.Time
}

// maxBoots limits how many boot IDs are remembered of a node.
const maxBoots = 8

// refusal is when the API server first refused the pod of a name.
type refusal struct {
	name  string
	since time.Time
}

// NewTracker makes a Tracker on the clock.
func NewTracker(now func() time.Time, dryRun bool) *Tracker {
	return &Tracker{Now: now, DryRun: dryRun, pods: map[types.UID]workerpod.FirstSeen{}, asked: map[string]asked{},
		nodes: map[string]*trackedNode{}, warnings: map[types.UID]string{}, groups: map[string]*trackedGroup{},
		waiting: map[string]*waitingNode{}}
}

// ObservePod records what a watch has shown of a pod.
func (s *Tracker) ObservePod(pod *corev1.Pod) workerpod.Observation {
	o := workerpod.Observe(pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.pods[pod.UID]
	s.shows(pod, known)
	o.Seen = update(before, o, s.Now())
	s.pods[pod.UID] = o.Seen
	if o.Purpose == workerpod.PurposeProbe && o.Passed() && o.Seen.Witnessed && !before.Witnessed {
		s.groupPassed(o.Group)
	}
	return o
}

// observe returns the observation of a pod. If no watch has shown the pod yet, it counts as observed now. An end counts
// as witnessed only once a watch has shown it. Reading pods from the cache does not show their order: the pod that is
// read last may have ended first.
func (s *Tracker) observe(pod *corev1.Pod) workerpod.Observation {
	o := workerpod.Observe(pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	o.Seen = update(s.pods[pod.UID], o, s.Now())
	o.Seen.Witnessed = s.pods[pod.UID].Witnessed && o.Attempt.Result != nil
	return o
}

func update(seen workerpod.FirstSeen, o workerpod.Observation, now time.Time) workerpod.FirstSeen {
	if seen.First.IsZero() {
		seen.First = now
	}
	if o.InitContainer != "" && seen.Init.IsZero() {
		seen.Init = now
	}
	if o.InitContainer == "" && !seen.Init.IsZero() && seen.InitEnded.IsZero() {
		seen.InitEnded = now
	}
	if o.State == workerpod.Running && seen.Running.IsZero() {
		seen.Running = now
	}
	switch {
	case o.Unschedulable == "":
		seen.Unschedulable = time.Time{}
	case seen.Unschedulable.IsZero():
		seen.Unschedulable = now
	}
	if o.Terminating && seen.Terminating.IsZero() {
		seen.Terminating = now
	}
	switch {
	case len(o.Finalizers) > 0:
		seen.FinalizersGone = time.Time{}
	case o.Terminating && seen.FinalizersGone.IsZero():
		seen.FinalizersGone = now
	}
	switch {
	case o.Attempt.Result == nil: // an image that could not be pulled at first is no result of the run after it
		seen.Result, seen.Witnessed, seen.UnderWay = time.Time{}, false, true
	case seen.Result.IsZero():
		seen.Result, seen.Witnessed = now, seen.UnderWay
	}
	return seen
}

// PodGone drops a pod. An attempt that vanished without a result is remembered until a later one is observed, and so is
// an attempt that ended because its pod was deleted. Both may be over before the node is reconciled. A recorded attempt
// already has its result, although its deleted pod looks the same. Nothing is remembered of a pod that ends after its
// node, because another node may have the name by then.
func (s *Tracker) PodGone(o workerpod.Observation, pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shows(pod, true)
	delete(s.pods, pod.UID)
	delete(s.warnings, pod.UID)
	uid, n, r := types.UID(pod.Labels[workerpod.LabelNodeUID]), s.nodes[o.Node], o.Attempt.Result
	switch {
	case o.Purpose != workerpod.PurposeVerify, o.Recorded, r != nil && r.Reason != attempt.ReasonPodDeleted:
	case n == nil && r != nil, n != nil && n.uid != uid:
	default:
		// What it ran, and in which boot, is its own: another run begins with the present ones.
		s.node(o.Node, uid).vanished = attempt.Attempt{Number: o.Attempt.Number,
			Basis: attempt.Basis{BootID: o.Attempt.Basis.BootID, Checks: o.Attempt.Basis.Checks}}
	}
}

// GateChanged records that a watch has shown a node gain or lose its gate. One event may show both.
func (s *Tracker) GateChanged(in decide.Input) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node(in.Node.Name, types.UID(in.Node.UID)).gateOpen = s.Now()
}

// BootChanged records that a watch has shown another boot ID of a node than old. A boot ID that returns belongs to a
// second machine of the node's name.
func (s *Tracker) BootChanged(old string, in decide.Input) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, now := s.node(in.Node.Name, types.UID(in.Node.UID)), s.Now()
	n.boots = slices.DeleteFunc(n.boots, func(b boot) bool { return now.Sub(b.at) >= decide.BootReturns || b.id == old })
	f := in.Node.Record.Flapping // of an earlier leader, too
	if f != nil && slices.Contains(f.BootIDs, in.Node.BootID) ||
		slices.ContainsFunc(n.boots, func(b boot) bool { return b.id == in.Node.BootID }) {
		n.returned, n.bootIDs = now, slices.Sorted(slices.Values([]string{in.Node.BootID, old}))
	}
	n.boots = append(n.boots, boot{old, now})
	n.boots = n.boots[max(0, len(n.boots)-maxBoots):]
}

// NodeGone drops a node.
func (s *Tracker) NodeGone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waitsNoMore(name)
	maps.DeleteFunc(s.asked, func(_ string, a asked) bool { return a.on.Name == name })
	delete(s.nodes, name)
}

// node is what was observed of a node. What was observed of an earlier node with the name is dropped. s.mu must be
// held.
func (s *Tracker) node(name string, uid types.UID) *trackedNode {
	n := s.nodes[name]
	if n == nil || n.uid != uid {
		n = &trackedNode{uid: uid}
		s.nodes[name] = n
	}
	return n
}

// ofNode adds what was observed of the node to in.
func (s *Tracker) ofNode(in *decide.Input) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[in.Node.Name]; n != nil && n.uid == types.UID(in.Node.UID) {
		in.Vanished, in.DryRunDone, in.GateOpenSeen, in.NotReadySeen = n.vanished, n.dryRunDone, n.gateOpen, n.notReady
		in.BootReturned, in.BootIDs = n.returned, n.bootIDs
	}
}

// observeNode records whether a node was Ready.
func (s *Tracker) observeNode(f marks.Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[f.Name]; f.Ready && (n == nil || n.uid != types.UID(f.UID)) {
		return // there is nothing to remember
	}
	n := s.node(f.Name, types.UID(f.UID))
	if n.lost = f.Lost; !f.Ready {
		n.notReady = s.Now()
	}
}

// Lost reports whether the node's condition Ready was last observed as Unknown: its kubelet stopped reporting.
func (s *Tracker) Lost(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[name]
	return n != nil && n.lost
}

// neededSince is when the process first observed that the node must be verified, or zero if the node need not be.
func (s *Tracker) neededSince(in decide.Input) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if !decide.Eligible(in) || !decide.NeedsVerification(in, now) {
		if n := s.nodes[in.Node.Name]; n != nil {
			n.needed = time.Time{}
		}
		return time.Time{}
	}
	n := s.node(in.Node.Name, types.UID(in.Node.UID))
	if n.needed.IsZero() {
		n.needed = now
	}
	return n.needed
}

// PodRefused records that the API server rejected the node's pod, and returns for how long it has done so.
func (s *Tracker) PodRefused(in decide.Input, pod string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, now := s.node(in.Node.Name, types.UID(in.Node.UID)), s.Now()
	if n.pod.name != pod {
		n.pod = refusal{name: pod, since: now}
	}
	return now.Sub(n.pod.since)
}

// FinishDryRun remembers that a node had its attempt in a dry run.
func (s *Tracker) FinishDryRun(in decide.Input) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node(in.Node.Name, types.UID(in.Node.UID)).dryRunDone = true
}

// ConditionDue is decide.ConditionDue with the remembered pending condition of the node.
func (s *Tracker) ConditionDue(in decide.Input, plan decide.Plan) (write bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pending, next decide.PendingCondition
	n := s.nodes[in.Node.Name]
	if n != nil && n.uid == types.UID(in.Node.UID) {
		pending = n.wanted
	}
	if plan.Condition != nil {
		write, next, wait = decide.ConditionDue(*plan.Condition, in.Node.Condition, pending, s.Now())
	}
	if next != pending { // most nodes of a fleet have nothing pending, and no entry
		s.node(in.Node.Name, types.UID(in.Node.UID)).wanted = next
	}
	return write, wait
}

// Refused remembers why the API server rejects a request about a node. what names the request in the condition. An
// empty why drops it.
func (s *Tracker) Refused(in decide.Input, what, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[in.Node.Name]
	switch {
	case why != "":
		n = s.node(in.Node.Name, types.UID(in.Node.UID))
		if n.refused == nil {
			n.refused = map[string]string{}
		}
		n.refused[what] = why
	case n != nil:
		delete(n.refused, what)
	}
}

// reportAfter is how long a request about a node fails before that is reported, if it may succeed later.
const reportAfter = time.Minute

// Fails remembers the error of a request about a node, as Refused does, once it must be reported, and returns what to
// report. That is a refusal at once, and another error after a minute. A conflict is decided again, so it drops the
// error, as success does.
func (s *Tracker) Fails(in decide.Input, what string, err error) (why string) {
	switch apierr.Of(err, apierr.Patch) {
	case apierr.Refused:
		why = cmp.Or(apierr.Refusal(err, apierr.Patch), err.Error())
	case apierr.Later, apierr.Unknown:
		why = s.lasting(in, what, err.Error())
	default:
		s.lasting(in, what, "")
	}
	s.Refused(in, what, why)
	return why
}

// lasting returns why a request failed first, once that was long enough ago. An empty why ends it.
func (s *Tracker) lasting(in decide.Input, what, why string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[in.Node.Name]
	if why == "" {
		if n != nil {
			delete(n.failing, what)
		}
		return ""
	}
	n = s.node(in.Node.Name, types.UID(in.Node.UID))
	first, ok := n.failing[what]
	if !ok {
		if n.failing == nil {
			n.failing = map[string]failure{}
		}
		n.failing[what] = failure{since: s.Now(), why: why}
		return ""
	}
	if s.Now().Sub(first.since) < reportAfter {
		return ""
	}
	return first.why // the text of later ones may vary, and each would be a write
}

// RefusedEnd is the request of Refused that ends a worker pod.
const RefusedEnd = "worker pods do not end"

// EndRefused is why the API server refuses to end a worker pod of the node of a name; empty where it does not.
func (s *Tracker) EndRefused(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[name]; n != nil {
		return n.refused[RefusedEnd]
	}
	return ""
}

const (
	// unwatchedFor is how long a refused watch of worker pods is reported. It is tried again within a minute.
	unwatchedFor = 2 * time.Minute
	// refusedWatch names that request in a condition.
	refusedWatch = "results of worker pods come late"
)

// PodsUnwatched remembers why the API server refuses to watch worker pods. Until the watch is tried again, their ends
// are not seen, and every node that is not verified may wait for that.
func (s *Tracker) PodsUnwatched(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwatched, s.unwatchedAt = why, s.Now()
}

// WithRefused is the condition with the reasons that Refused and PodsUnwatched remember. A True condition stays as it
// is, because the node waits for nothing.
func (s *Tracker) WithRefused(in decide.Input, c *marks.Condition) *marks.Condition {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused := map[string]string{}
	if n := s.nodes[in.Node.Name]; n != nil {
		maps.Copy(refused, n.refused)
	}
	if s.unwatched != "" && s.Now().Sub(s.unwatchedAt) < unwatchedFor {
		refused[refusedWatch] = s.unwatched
	}
	if len(refused) == 0 || c == nil || c.Status == corev1.ConditionTrue {
		return c
	}
	out := *c
	for _, what := range slices.Sorted(maps.Keys(refused)) {
		out.Message = attempt.Text(out.Message + "; " + what + ": " + refused[what])
	}
	return &out
}

// FirstEvent reports whether an event of the key is a new one for the node.
func (s *Tracker) FirstEvent(in decide.Input, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.node(in.Node.Name, types.UID(in.Node.UID))
	if n.emitted == key {
		return false
	}
	n.emitted = key
	return true
}

// NodeCreated begins the timeline of a node that was created a moment ago.
func (s *Tracker) NodeCreated(in decide.Input) {
	if !in.Node.Gated || !decide.Eligible(in) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node(in.Node.Name, types.UID(in.Node.UID)).timeline = decide.NewTimeline(s.Now())
}

// Decided records what was decided about a node.
func (s *Tracker) Decided(in decide.Input, plan decide.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[in.Node.Name]
	if n == nil && len(plan.Unmet) == 0 {
		return
	}
	n = s.node(in.Node.Name, types.UID(in.Node.UID))
	n.waits = plan.WaitingLabels(in)
	switch {
	case n.timeline == nil:
	case !in.Node.Gated || !decide.Eligible(in):
		n.timeline = nil // somebody else released it, or excluded it
	default:
		n.timeline.Observe(in, plan, s.Now())
	}
}

// Released ends the timeline of a node that was released. It is nil if the node has none, because it was already
// waiting when this process became the leader.
func (s *Tracker) Released(in decide.Input) map[decide.Phase]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[in.Node.Name]
	if n == nil || n.uid != types.UID(in.Node.UID) || n.timeline == nil {
		return nil
	}
	spent := n.timeline.End(s.Now())
	n.timeline = nil
	return spent
}

// Waiting counts the waiting nodes, by what they wait for.
func (s *Tracker) Waiting() map[decide.WaitingLabels]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := map[decide.WaitingLabels]int{}
	for _, n := range s.nodes {
		for _, w := range n.waits {
			count[w]++
		}
	}
	return count
}
