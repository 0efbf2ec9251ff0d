package chaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// checker holds what it is shown, one change after the other, to what must never happen. It knows nothing but the changes, and
// decides by itself: of the product it takes names and the form of what is written.
type checker struct {
	settings settings
	// showed reports whether a watch showed a leader a version of a node within some time; see shownVersions. Nil: it did.
	showed func(leader string, node types.UID, from, before int64, since, until time.Time) bool

	mu       sync.Mutex
	nodes    map[string]*nodeSeen    // those that are there, by name
	ever     map[types.UID]*nodeSeen // all
	pods     map[string]*podSeen     // worker pods that are there, by key
	attempts map[attemptID][]*podSeen
	altered  map[string]*podSeen // those that the policy changed, by key
	ordinary map[string]*podSeen // other pods that are there, by key
	claims   map[string]*karpv1.NodeClaim
	rules    map[string]*ruleSeen
	ledger   map[types.UID]metav1.Time // when an action on each node was last entered
	entries  map[entryID]bool          // those that the ledger has
	paused   time.Time                 // since when remediation is paused; zero where it is not
	ran      map[string]string         // the checks that workers ran, by how records name them
	holder   string
	led      time.Time // since when; zero from when the controllers are killed to the next election
	faults   []string
	counts   map[string]int
	changed  time.Time // when anything was last changed that is not a lease
	endless  []endless // the faults that have begun and do not end
	calm     time.Time // when the last other fault ended
	refused  time.Time // since when the right to conditions is refused for a while; zero where it is not
	granted  time.Time // when a controller has tried again after that
	// former are the settings before the present ones, which are from configured on.
	former     settings
	configured time.Time
}

type attemptID struct {
	node   types.UID
	number int
}

// nodeSeen is what was seen of one node.
type nodeSeen struct {
	node *corev1.Node
	// closed is the revision at which the gate was last closed, open the one at which it was last opened. gaps are its times
	// without a gate that are over.
	closed, open int64
	gaps         []gap
	passed       bool // it was released once
	spoilt       bool // somebody changed its record by hand
	skipped      time.Time
	intended     *corev1.Node
	early        string    // why the deletion should not have been intended
	busy         bool      // it ran ordinary pods long before the deletion was intended
	sound        time.Time // it was last not unhealthy
	gone         bool
	left         time.Time // it is gone since
	said         time.Time // its condition last named what keeps it from being verified
	waits        time.Time // it waits for its verification since
	passedAt     time.Time // when a pass was last recorded
	story        []string
	referral
	asks
	history
}

// ran is what a played kubelet says of a worker that ended: what it really did, whatever the pod's own marks say.
type ran struct {
	Node, Boot, Checks string
	Exit               int
	Unreported         bool // no report says so
}

type podSeen struct {
	pod      *corev1.Pod
	created  int64
	since    time.Time
	running  time.Time // when it was seen to run
	asked    time.Time // when its end was first seen to be asked for
	ran      *ran
	removed  bool // by somebody else than the controller
	outdated bool // somebody changed the record by hand since, or opted the node out
	gone     bool
	ended    time.Time
}

func newChecker(s settings) *checker {
	return &checker{settings: s, nodes: map[string]*nodeSeen{}, ever: map[types.UID]*nodeSeen{}, pods: map[string]*podSeen{}, attempts: map[attemptID][]*podSeen{},
		altered: map[string]*podSeen{}, ordinary: map[string]*podSeen{}, claims: map[string]*karpv1.NodeClaim{}, rules: map[string]*ruleSeen{}, ledger: map[types.UID]metav1.Time{},
		entries: map[entryID]bool{}, ran: map[string]string{}, counts: map[string]int{}}
}

// see takes the next change.
func (c *checker) see(ch change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts["changes"]++
	o := ch.after
	if o == nil {
		o = ch.before
	}
	switch o.(type) {
	case *corev1.Node:
		before, _ := ch.before.(*corev1.Node)
		after, _ := ch.after.(*corev1.Node)
		c.seeNode(before, after, ch)
	case *corev1.Pod:
		before, _ := ch.before.(*corev1.Pod)
		after, _ := ch.after.(*corev1.Pod)
		c.seePod(before, after, ch)
	case *karpv1.NodeClaim:
		before, _ := ch.before.(*karpv1.NodeClaim)
		after, _ := ch.after.(*karpv1.NodeClaim)
		c.seeClaim(before, after, ch)
	case *corev1.ConfigMap:
		after, _ := ch.after.(*corev1.ConfigMap)
		c.seeLedger(after, ch)
	case *coordinationv1.Lease:
		lease, _ := ch.after.(*coordinationv1.Lease)
		if lease != nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" && *lease.Spec.HolderIdentity != c.holder {
			c.holder, c.led = *lease.Spec.HolderIdentity, ch.at
			c.counts["leaders"]++
		}
		return
	default:
		c.seeRule(ch)
	}
	c.changed = ch.at
}

// fault notes what must not have happened, with what was seen of the node before.
func (c *checker) fault(n *nodeSeen, ch change, format string, args ...any) {
	text := fmt.Sprintf("revision %d, %s: ", ch.revision, ch.key) + fmt.Sprintf(format, args...)
	if n != nil {
		text += "\n  " + strings.Join(n.story[max(0, len(n.story)-60):], "\n  ")
	}
	c.faults = append(c.faults, text)
}

func (n *nodeSeen) tell(ch change, format string, args ...any) {
	n.story = append(n.story, fmt.Sprintf("%s %d ", ch.at.Format("05.000"), ch.revision)+fmt.Sprintf(format, args...))
}

func (c *checker) seeNode(before, after *corev1.Node, ch change) {
	if before == nil {
		n := &nodeSeen{node: after, sound: ch.at, waits: ch.at}
		c.nodes[after.Name], c.ever[after.UID] = n, n
		if n.open = ch.revision; gated(after) {
			n.closed = ch.revision
		}
		c.lives(n, nil, after, ch)
		c.counts["nodes"]++
		n.tell(ch, "node %s created, boot %s, %s", after.UID, boot(after), c.settings.checksOf(after.Labels))
		return
	}
	n := c.ever[before.UID]
	if n == nil {
		return // from before this checker
	}
	if after == nil || after.DeletionTimestamp != nil && before.DeletionTimestamp == nil {
		n.tell(ch, "node deleted, by somebody else: %q", before.Annotations[annotationEnded])
		if before.Annotations[annotationEnded] == "" {
			c.deleted(n, ch, "Node", before.Name, before.UID)
		}
	}
	if after == nil {
		n.gone, n.left = true, ch.at
		if c.nodes[before.Name] == n {
			delete(c.nodes, before.Name)
		}
		return
	}
	n.node = after
	switch {
	case !gated(before) && gated(after):
		n.closed, n.gaps = ch.revision, append(n.gaps, gap{n.open, ch.revision})
	case gated(before) && !gated(after):
		n.open = ch.revision
	}
	if after.Annotations["node-ready/skip"] == "true" || before.Annotations["node-ready/skip"] == "true" {
		n.skipped = ch.at
	}
	if !c.unhealthy(before) || !c.unhealthy(after) {
		n.sound = ch.at
	}
	if s := describe(after); s != describe(before) {
		n.tell(ch, "%s", s)
	}
	if foreign(after) != after.Annotations[annotationMarks] && foreign(before) == before.Annotations[annotationMarks] {
		c.fault(n, ch, "foreign marks were touched: %s, announced was %s", foreign(after), after.Annotations[annotationMarks])
	}
	if free(before) && !free(after) {
		n.waits = ch.at
	}
	c.lives(n, before, after, ch)
	c.hears(n, ch.at)
	c.recorded(n, before, after, ch)
	c.suspected(n, before, after, ch)
	c.asked(n, before, after, ch)
	c.released(n, before, after, ch)
	c.ruled(n, before, after, ch)
}

func describe(n *corev1.Node) string {
	r := recordOf(n)
	return fmt.Sprintf("gated=%t verified=%t boot=%s profile=%s record{%d %s %s attempts=%d of %s held=%s deletion=%v %s} opt-out=%q rules=%s", gated(n), verified(n), boot(n), n.Labels[labelProfile],
		r.Sequence, r.LastOutcome, r.LastReason, r.Attempts, r.BootID, r.Held, r.Deletion != nil, describeRepair(n), optedOut(n), ruleTaints(n))
}

// recorded checks what a change makes of the record: every attempt is counted once, for what it was.
func (c *checker) recorded(n *nodeSeen, before, after *corev1.Node, ch change) {
	if before.Annotations[annotationRecord] != after.Annotations[annotationRecord] {
		for id, pods := range c.attempts {
			for _, p := range pods {
				p.outdated = p.outdated || id.node == after.UID
			}
		}
		n.passed, n.spoilt, n.ground = false, true, "" // who took the record away took the pass away, too
		return
	}
	was, is := recordOf(before), recordOf(after)
	if is.Deletion != nil && was.Deletion == nil {
		c.intends(n, before, ch)
	}
	if is.Held != "" && is.Held != was.Held {
		c.counts["held by "+is.Held]++
	}
	n.passed = n.passed || adopted(after) && !adopted(before)
	if restored(before, after) {
		c.recordsRestored(n, after, ch)
		return
	}
	if is.Sequence == was.Sequence {
		if is.Attempts != was.Attempts || is.Inconclusive != was.Inconclusive || is.LastOutcome != was.LastOutcome {
			c.fault(n, ch, "the account was changed without an attempt: from %+v to %+v", was, is)
		}
		return
	}
	if is.Sequence != was.Sequence+1 {
		c.fault(n, ch, "the record goes from attempt %d to %d", was.Sequence, is.Sequence)
		return
	}
	c.counts["attempts recorded"]++
	c.counts["attempts "+string(is.LastOutcome)]++
	if is.LastReason == workerStuck {
		c.counts["attempts "+string(is.LastOutcome)+" for a stuck worker"]++
	}
	spent := was.Attempts
	if was.LastOutcome == "" || was.LastOutcome == attempt.Passed || was.BootID != "" && was.BootID != boot(after) || was.Checks != is.Checks {
		spent = 0 // a run begins after a pass, after a reboot and with other checks
	}
	switch is.LastOutcome {
	case attempt.Passed:
		n.passedAt, n.ground = ch.at, ""
		if !c.some(after.UID, int(is.Sequence), func(p *podSeen) bool { return p.ran != nil && p.ran.Exit == 0 }) {
			c.fault(n, ch, "attempt %d is recorded as passed, and no worker of it passed", is.Sequence)
		}
		return
	case attempt.Failed:
		if spent = min(spent+1, c.settings.maxRetries); is.LastReason == workerStuck && is.LastCheck == "" {
			spent = c.settings.maxRetries
		}
		c.fails(n, ch)
	}
	if (is.LastReason == attempt.ReasonSharedFailure || is.LastReason == attempt.ReasonChecksChanged) && is.LastCheck == "" {
		spent = 0 // a row of failures is broken
	}
	if is.LastOutcome == attempt.Inconclusive && is.Attempts == 0 && (is.LastReason == attempt.ReasonGateRemoved || c.stale(after) != "") {
		spent = 0 // the worker ran other checks, or may have
	}
	if is.Attempts != spent {
		c.fault(n, ch, "%d failures are counted, of %d", is.Attempts, spent)
	}
	c.closes(n, before, after, ch)
}

// closes checks that the result of an attempt closes a node that worked only as its second failure in a row beside which
// a control probe passed.
func (c *checker) closes(n *nodeSeen, before, after *corev1.Node, ch change) {
	was, is := recordOf(before), recordOf(after)
	if !was.MayHaveVerified() || gated(before) || !gated(after) {
		return
	}
	c.counts["nodes that worked closed"]++
	if is.LastOutcome != attempt.Failed || !is.Probed || was.LastOutcome != attempt.Failed || !was.Probed {
		c.fault(n, ch, "the gate is closed by attempt %d: %+v after %+v", is.Sequence, is, was)
	}
}

// underWay is longer than what lies between the read of a worker and the write of its record: the lease of a leader that is stopped in
// between runs out.
const underWay = 3 * time.Second

// some reports whether one of the pods of an attempt is as wanted.
func (c *checker) some(node types.UID, number int, want func(*podSeen) bool) bool {
	return slices.ContainsFunc(c.attempts[attemptID{node, number}], want)
}

// gap is a time without a gate, by the revisions at which it began and ended.
type gap struct{ opened, closed int64 }

const (
	// leadsAfter is how long after its election a controller may begin to note what its watches show.
	leadsAfter = time.Second
	// decidesWithin is longer than a decision takes, from what was shown before it to the write.
	decidesWithin = time.Second
)

// outlived reports whether a worker is from before the gate was closed, as far as the controller can know: the worker's
// own mark says that there was no gate when it was made, or a watch showed the leader in time that there was none later.
func (c *checker) outlived(n *nodeSeen, p *podSeen, ch change) bool {
	return slices.ContainsFunc(n.gaps, func(g gap) bool {
		switch {
		case g.closed < p.created:
			return false
		case g.opened < p.created && p.pod.Annotations[workerpod.AnnotationGated] != "true":
			return true
		}
		return c.showed == nil || c.showed(c.holder, n.node.UID, g.opened, g.closed, c.led.Add(leadsAfter), ch.at.Add(-decidesWithin))
	})
}

// released checks that a node is released by a pass of this very node, boot and set of checks, from after the gate was
// closed.
func (c *checker) released(n *nodeSeen, before, after *corev1.Node, ch change) {
	opened := gated(before) && !gated(after)
	if !opened && (verified(before) || !verified(after)) || replacedTaints(before, after) {
		return
	}
	c.counts["releases"]++
	r := recordOf(after)
	passes := func(p *podSeen) bool {
		return p.ran != nil && *p.ran == ran{Node: string(after.UID), Boot: boot(after), Checks: p.ran.Checks} &&
			c.ranFor(p.ran.Checks, after.Labels, ch) && (!opened || !c.outlived(n, p, ch))
	}
	switch {
	case r.LastOutcome != attempt.Passed || r.BootID != boot(after) || r.VerifiedTime == nil:
		c.fault(n, ch, "released, and the record says %+v", r)
	case !c.some(after.UID, int(r.Sequence), passes):
		c.fault(n, ch, "released without a pass of node %s, boot %s and %s since revision %d", after.UID, boot(after), c.settings.checksOf(after.Labels), n.closed)
	case after.Labels[labelPool] != "" && after.Labels["karpenter.sh/registered"] != "true" && opened:
		c.fault(n, ch, "released before Karpenter registered it")
	case opened && c.unprepared(n, before, ch) != "":
		c.fault(n, ch, "released, and %s", c.unprepared(n, before, ch))
	case gated(after):
		c.fault(n, ch, "labelled as verified, and still gated")
	}
	n.passed = true
}

func (c *checker) seePod(before, after *corev1.Pod, ch change) {
	if strings.HasPrefix(ch.key, "pods/default/") {
		c.seeOrdinary(after, ch)
		return
	}
	if c.seeAltered(before, after, ch) {
		return
	}
	p := c.pods[ch.key]
	if after == nil || p != nil && p.pod.UID != after.UID {
		if p != nil {
			p.gone = true
			delete(c.pods, ch.key)
			c.tellPod(p, ch, "is gone")
			if p.pod.DeletionTimestamp == nil {
				c.ends(p, ch)
			}
			c.lets(p, ch)
		}
		if after == nil {
			return
		}
		p = nil
	}
	if after.Labels[labelForged] != "" {
		return
	}
	if p == nil {
		p = &podSeen{pod: after, created: ch.revision, since: ch.at}
		c.pods[ch.key] = p
		c.counts["workers"]++
		if checks := after.Annotations[workerpod.AnnotationChecks]; checks != "" {
			c.ran[checks] = configuredChecks(after)
		}
		c.tellPod(p, ch, "is created on boot %s for %s", after.Annotations[workerpod.AnnotationBootID], after.Annotations[workerpod.AnnotationProfile])
		c.started(p, ch)
		return
	}
	p.pod, p.removed = after, p.removed || after.Annotations[annotationEnded] != ""
	if p.running.IsZero() && after.Status.Phase == corev1.PodRunning {
		p.running = ch.at
	}
	if p.ran == nil && after.Status.Message != "" {
		var r ran
		if json.Unmarshal([]byte(after.Status.Message), &r) == nil {
			p.ran = &r
		}
	}
	if p.ended.IsZero() && !occupies(after) {
		p.ended = ch.at
		c.tellPod(p, ch, "ended: %s %s %+v", after.Status.Phase, after.Status.Reason, p.ran)
	}
	if before != nil && before.DeletionTimestamp == nil && after.DeletionTimestamp != nil {
		c.tellPod(p, ch, "is to go, by somebody else: %t", p.removed)
		p.asked = ch.at
		c.ends(p, ch)
	}
}

func (c *checker) tellPod(p *podSeen, ch change, format string, args ...any) {
	if n := c.ever[owner(p.pod)]; n != nil {
		n.tell(ch, "  %s "+format, append([]any{p.pod.Name}, args...)...)
	}
}

// owner is the UID of the node that owns a worker pod.
func owner(p *corev1.Pod) types.UID {
	for _, o := range p.OwnerReferences {
		if o.Kind == "Node" {
			return o.UID
		}
	}
	return ""
}

func number(p *corev1.Pod) int {
	n, _ := strconv.Atoi(p.Annotations[workerpod.AnnotationAttempt])
	return n
}

func isVerify(p *corev1.Pod) bool {
	return p.Labels[workerpod.LabelPurpose] == workerpod.PurposeVerify
}

// occupies reports whether a container of the pod may still run, or may yet start. The API server writes the end of a pod
// that its kubelet confirms in two steps: none is left of its grace, then it is gone.
func occupies(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil && ptr.Deref(p.DeletionGracePeriodSeconds, 1) == 0 && len(p.Status.ContainerStatuses) == 0 {
		return false
	}
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	return len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Terminated == nil
}

// started checks a worker that was just created: its attempt is a new one, and it is alone.
func (c *checker) started(p *podSeen, ch change) {
	if !isVerify(p.pod) {
		c.counts["probes"]++
		return
	}
	id := attemptID{owner(p.pod), number(p.pod)}
	n := c.ever[id.node]
	if n == nil {
		c.fault(nil, ch, "a worker was created for a node %s that never was", id.node)
		return
	}
	switch was := int(recordOf(n.node).Sequence); {
	case n.gone, id.number == was+1:
	case id.number > was && n.spoilt:
		p.outdated = true // it was decided on the record that somebody took away
	default:
		c.fault(n, ch, "attempt %d begins, and %d is recorded", id.number, was)
	}
	if !n.gone && !n.spoilt {
		c.hasty(n, ch)
	}
	for _, other := range c.attempts[id] {
		if other.ran != nil && !other.removed && !other.outdated {
			c.fault(n, ch, "attempt %d begins again, although it had a result", id.number)
		}
	}
	c.attempts[id] = append(c.attempts[id], p)
	for _, other := range c.pods {
		if other != p && isVerify(other.pod) && owner(other.pod) == id.node && occupies(other.pod) {
			c.fault(n, ch, "it occupies the node beside %s", other.pod.Name)
		}
	}
}

// leastBackoff is the least wait between two attempts: initialBackoffSeconds less its jitter of a fifth.
const leastBackoff = 800 * time.Millisecond

// hasty checks that an attempt that begins waited since the last one that did not pass. One may begin at once after a
// reboot, under other checks, for a request, once a stuck worker has gone, or once a node of its group passed, if it
// shared its failure or used its retries up.
func (c *checker) hasty(n *nodeSeen, ch change) {
	r := recordOf(n.node)
	if r.LastOutcome == "" || r.LastOutcome == attempt.Passed || r.LastTime == nil || r.BootID != boot(n.node) || c.stale(n.node) != "" ||
		r.Suspicion != nil || r.LastReason == workerStuck || r.Shared > 0 || r.Attempts >= c.settings.maxRetries {
		return
	}
	c.counts["attempts after one that did not pass"]++
	if waited := ch.at.Sub(*r.LastTime); waited < leastBackoff {
		c.fault(n, ch, "attempt %d begins %s after one that did not pass", r.Sequence+1, waited)
	}
}

// ends checks a worker whose end somebody asks for: its result is recorded, unless the node no longer asks for it.
func (c *checker) ends(p *podSeen, ch change) {
	n := c.ever[owner(p.pod)]
	if !isVerify(p.pod) || p.removed || p.outdated || n == nil || n.gone || n.node.Annotations[annotationEnded] != "" {
		return
	}
	if n.node.Annotations["node-ready/skip"] == "true" || c.settings.leavesOutNode(n.node) || !n.skipped.Before(p.since) || unaccounted(n.node) || ch.at.Sub(n.alone) < underWay {
		p.outdated = true // nobody asks for its result, and once somebody does it is another one's
		return
	}
	if have := int(recordOf(n.node).Sequence); number(p.pod) > have {
		c.fault(n, ch, "the worker of attempt %d is deleted, and %d is recorded", number(p.pod), have)
	}
}

// unaccounted reports whether the node is left alone because somebody took its record away, or spoilt that of a verified one.
func unaccounted(n *corev1.Node) bool {
	_, there := n.Annotations[marks.AnnotationRecord]
	return !gated(n) && (!there || verified(n) && recordOf(n).NodeUID == "")
}

// adopted reports whether the node carries the label and a record that no attempt led to: somebody took that of its
// pass away. It counts as verified.
func adopted(n *corev1.Node) bool {
	r := recordOf(n)
	return verified(n) && !gated(n) && r.LastReason == attempt.ReasonAdopted && r.LastOutcome == ""
}

func (c *checker) seeOrdinary(after *corev1.Pod, ch change) {
	delete(c.ordinary, ch.key)
	if after != nil && after.DeletionTimestamp == nil && after.Spec.NodeName != "" {
		c.ordinary[ch.key] = &podSeen{pod: after, since: after.CreationTimestamp.Time}
	}
}

// busy reports whether the node has run an ordinary pod for long enough that whoever lists its pods sees it.
func (c *checker) busy(n *nodeSeen, ch change) bool {
	for _, p := range c.ordinary {
		if p.pod.Spec.NodeName == n.node.Name && ch.at.Sub(p.since) > 3*time.Second {
			return true
		}
	}
	return false
}

func (c *checker) seeClaim(before, after *karpv1.NodeClaim, ch change) {
	if after != nil {
		c.claims[after.Name] = after
	} else {
		delete(c.claims, before.Name)
	}
	if before == nil || before.DeletionTimestamp != nil || after != nil && after.DeletionTimestamp == nil || before.Annotations[annotationEnded] != "" {
		return
	}
	for _, n := range c.ever {
		if n.node.Spec.ProviderID == before.Status.ProviderID {
			n.tell(ch, "NodeClaim %s deleted", before.Name)
			c.deleted(n, ch, "NodeClaim", before.Name, before.UID)
			return
		}
	}
	c.fault(nil, ch, "a NodeClaim is deleted that is of no node")
}

// seeLedger checks the deletions that are entered, before each happens.
func (c *checker) seeLedger(after *corev1.ConfigMap, ch change) {
	if after == nil || after.Name != ledger.Name {
		return
	}
	var entries []ledger.Entry
	if err := json.Unmarshal([]byte(after.Data[ledger.KeyDeletions]), &entries); err != nil {
		c.fault(nil, ch, "the ledger cannot be read: %v", err)
	}
	switch why := after.Annotations[ledger.AnnotationPaused]; {
	case why == "" || why == "false":
		c.paused = time.Time{}
	case c.paused.IsZero():
		c.paused = ch.at
	}
	defer c.weighAll(ch.at)
	had := c.entries
	c.entries = map[entryID]bool{}
	for _, e := range entries {
		c.entries[idOf(e)] = true
	}
	for _, e := range entries {
		uid := types.UID(e.UID)
		if had[idOf(e)] {
			continue
		}
		c.ledger[uid] = e.Time
		n := c.ever[uid]
		if n == nil {
			c.fault(nil, ch, "the deletion of a node %s is entered that never was", uid)
			continue
		}
		n.tell(ch, "entered in the ledger: %s %s", e.Kind, e.Name)
		c.enters(n, e, ch)
		if e.Kind != kindCondition && recordOf(n.node).Deletion == nil && !n.gone {
			c.fault(n, ch, "the deletion is entered, and the record does not intend it")
		}
		if !c.paused.IsZero() {
			c.fault(n, ch, "an action is entered while remediation is paused")
		}
		others := 0
		for id := range c.entries {
			if id.node != uid {
				others++
			}
		}
		if others >= c.settings.perHour {
			c.fault(n, ch, "an action is entered beside %d on other nodes in an hour, the limit is %d", others, c.settings.perHour)
		}
		inFlight := 0
		for other, at := range c.ledger {
			// A node on which an action was carried out, and that passed since, is not in flight.
			if o := c.ever[other]; o != nil && !o.passedAt.After(at.Time) && o != n && !o.gone && o.node.Labels[labelPool] == n.node.Labels[labelPool] {
				inFlight++
			}
		}
		if inFlight >= int(c.settings.inFlight) {
			c.fault(n, ch, "%d other nodes of the pool are still being deleted, the limit is %d", inFlight, c.settings.inFlight)
		}
	}
	for id := range had {
		if !c.entered(id.node, id.kind, id.at) {
			c.fault(c.ever[id.node], ch, "the ledger has lost the entry of an action: %+v", id)
		}
	}
}

// entered reports whether the ledger has an action of the kind on the node, from then or later: one that is tried again
// keeps one entry.
func (c *checker) entered(node types.UID, kind string, from int64) bool {
	for id := range c.entries {
		if id.node == node && id.kind == kind && id.at >= from {
			return true
		}
	}
	return false
}

// deleted checks a deletion that only the controller can have asked for.
func (c *checker) deleted(n *nodeSeen, ch change, kind, name string, uid types.UID) {
	c.counts["deletions of a "+kind]++
	r := recordOf(n.node)
	if d := r.Deletion; !n.gone && (d == nil || d.Kind != kind || d.Name != name || d.UID != string(uid)) {
		c.fault(n, ch, "%s %s is deleted, and the record intends %+v", kind, name, d)
		return
	}
	if !c.entered(n.node.UID, kind, 0) {
		c.fault(n, ch, "%s %s is deleted, and the ledger does not have it", kind, name)
	}
	if n.intended == nil {
		c.fault(n, ch, "%s %s is deleted, and nobody saw it intended", kind, name)
		return
	}
	r = recordOf(n.intended)
	why := optedOut(n.intended)
	switch {
	case r.LastOutcome != attempt.Failed || r.Attempts != c.settings.maxRetries:
		c.fault(n, ch, "%s %s is deleted after %+v", kind, name, r)
	case why != "":
		c.fault(n, ch, "%s %s is deleted, although %s was accepted before that was intended", kind, name, why)
	case n.passed && c.settings.neverVerifiedOnly:
		c.fault(n, ch, "%s %s is deleted, although the node was verified", kind, name)
	case n.busy:
		c.fault(n, ch, "%s %s is deleted, although the node runs ordinary pods", kind, name)
	case n.early != "":
		c.fault(n, ch, "%s %s is deleted, although %s", kind, name, n.early)
	case !r.Probed && c.settings.controlProbe:
		c.fault(n, ch, "%s %s is deleted, and no probe passed beside the last failure", kind, name)
	}
	if why := optedOut(n.node); why != "" {
		c.counts["opt-outs between intent and deletion"]++
	}
	for _, claim := range c.claims {
		if kind == "Node" && (claim.Status.ProviderID == n.node.Spec.ProviderID || claim.Status.NodeName == name) {
			c.fault(n, ch, "Node %s is deleted while NodeClaim %s lives", name, claim.Name)
		}
	}
	for _, p := range c.pods {
		if owner(p.pod) == n.node.UID && p.pod.DeletionTimestamp == nil && isVerify(p.pod) && kind == "NodeClaim" {
			c.fault(n, ch, "NodeClaim %s is deleted before worker %s", name, p.pod.Name)
		}
	}
}

// unsettled lists what is not as it must be once no fault is left.
func (c *checker) unsettled(now time.Time) (what []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	say := func(format string, args ...any) { what = append(what, fmt.Sprintf(format, args...)) }
	for name, n := range c.nodes {
		r := recordOf(n.node)
		if faults := c.concerning(n.node); len(faults) > 0 {
			c.silent(n, faults, now, say)
			continue
		}
		if len(ourConditions(n.node)) > 0 {
			say("%s has a condition still: %s", name, describe(n.node))
		}
		condition := verifiedCondition(n.node)
		if why := c.inSilence(n); why != "" {
			say("%s: %s", name, why)
		}
		if unaccounted(n.node) && (condition.Status == "" || condition.Reason == gateRemoved) || adopted(n.node) && recordOf(n.node).BootID == boot(n.node) {
			continue
		}
		if gated(n.node) || !verified(n.node) || r.LastOutcome != attempt.Passed || r.BootID != boot(n.node) || condition.Status != corev1.ConditionTrue {
			say("%s is not verified: %s, condition %s %s %s", name, describe(n.node), condition.Status, condition.Reason, condition.Message)
		}
		if n.node.DeletionTimestamp != nil || r.Deletion != nil || r.Held != "" {
			say("%s is being deleted, or held: %s", name, describe(n.node))
		}
		c.unruled(n, say)
		c.unanswered(n, say)
	}
	for slot := range slots {
		if c.nodes[nodeName(slot)] == nil && !c.concernedSlot(slot) {
			say("%s is not there", nodeName(slot))
		}
	}
	for _, p := range c.pods {
		n := c.ever[owner(p.pod)]
		switch {
		case n != nil && c.concernedSlot(slotOf(n.node.Name)):
		case n == nil || n.gone:
			say("%s is of a node that is gone", p.pod.Name)
		case isVerify(p.pod):
			say("%s is left", p.pod.Name)
		case !p.ended.IsZero() && now.Sub(p.ended) > probeStays:
			say("probe %s is left", p.pod.Name)
		}
	}
	for key, p := range c.altered {
		if p.asked.IsZero() {
			say("%s is left, and a policy changed it", key)
		}
	}
	for name, claim := range c.claims {
		if claim.DeletionTimestamp != nil && !c.concernedSlot(slotOf(claim.Status.NodeName)) {
			say("NodeClaim %s is still being deleted", name)
		}
	}
	slices.Sort(what)
	return what
}

// probeStays is how long a probe may be there once it ended: the controller keeps it for thirty seconds.
const probeStays = 45 * time.Second

// violations are what was found wrong so far.
func (c *checker) violations() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.faults)
}

// look reads under the lock what was seen of nodes.
func (c *checker) look(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}
