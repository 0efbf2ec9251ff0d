package chaos

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Four rules that hold whatever other programs write:
//
//   - No node is released whose prerequisites did not hold in this boot.
//   - No remediation without a report that names a failed check, a worker that ran on or cannot be ended, or a deadline
//     with onDeadline: remediate. No run has that setting, so a deadline is no ground here.
//   - No pod of the controller's is where it does not belong for longer than straysWithin.
//   - No node loses its gate in silence.
const (
	// straysWithin counts while a controller leads that can delete pods, and twice that long beside other faults.
	straysWithin = 10 * time.Second
	// saysWithin is how long the controller may take to say that a gate was removed, once no other fault is left.
	saysWithin = 15 * time.Second
	// reportsWithin is how long a node must be Ready before what was reported in an earlier boot counts: what the build
	// tag chaos makes of the controller's minute. A second less, since a controller may see a boot before the observer.
	reportsWithin = 5 * time.Second
	// seenWithin is how long a controller that leads may take to see that a node is gated. One that has made a worker for
	// a gated node has seen it.
	seenWithin = 3 * time.Second
)

// gateRemoved is the reason of the condition of a node whose gate somebody else removed.
const gateRemoved = "GateRemoved"

// history is what the four rules need to know of a node.
type history struct {
	booted time.Time // since when it is in its boot
	gated  time.Time // since when it is gated; zero where it is not
	opened time.Time // since when it is not; zero where it is
	lost   time.Time // when somebody else opened its gate, which the controller that leads had seen; zero where nobody did
	under  time.Time // when that controller was elected
	had    gate      // the gate that was lost
	alone  time.Time // when it last had neither gate nor record, so that nobody asked for its worker
	ground string    // why the last failure counts; empty where nothing is known
}

// gate is a time with a gate, by the revisions at which it began and ended.
type gate struct{ closed, opened int64 }

// lives notes the boot and the gate of a node. before is nil where it is created.
func (c *checker) lives(n *nodeSeen, before, after *corev1.Node, ch change) {
	if before == nil || boot(before) != boot(after) {
		n.booted = ch.at
	}
	if before != nil && (unaccounted(before) || unaccounted(after)) {
		n.alone = ch.at
	}
	switch {
	case gated(after):
		if n.lost, n.opened = (time.Time{}), (time.Time{}); n.gated.IsZero() {
			n.gated = ch.at
		}
	case n.opened.IsZero():
		if n.opened = ch.at; before != nil && replacedTaints(before, after) {
			c.loses(n, ch)
		}
		n.gated = time.Time{}
	}
}

// loses notes that somebody else opened the gate.
func (c *checker) loses(n *nodeSeen, ch change) {
	c.counts["gates opened by somebody else"]++
	since := n.gated
	if c.led.After(since) {
		since = c.led
	}
	saw := ch.at.Sub(since) >= seenWithin || slices.ContainsFunc(slices.Collect(maps.Values(c.pods)), func(p *podSeen) bool {
		return owner(p.pod) == n.node.UID && isVerify(p.pod) && p.since.After(since) && p.pod.Annotations[workerpod.AnnotationGated] == "true"
	})
	if c.led.IsZero() || !saw {
		return
	}
	c.counts["gates opened by somebody else, seen closed"]++
	n.lost, n.under, n.had = ch.at, c.led, gate{n.closed, ch.revision}
}

// replacedTaints reports whether the change is that of somebody who replaced all taints.
func replacedTaints(before, after *corev1.Node) bool {
	return before.Annotations[annotationTaints] != after.Annotations[annotationTaints]
}

// restored reports whether a change puts a gate back that somebody else removed.
func restored(before, after *corev1.Node) bool {
	r := recordOf(after)
	return !gated(before) && gated(after) && recordOf(before).NodeUID == "" && r.LastOutcome == "" && r.LastReason == gateRemoved
}

// inSilence says that a node lost its gate, and nothing shows it: it is not gated again, not verified, has no record,
// with which it is verified, and no condition that says so.
func (c *checker) inSilence(n *nodeSeen) string {
	silent := !n.lost.IsZero() && n.under.Equal(c.led) && !gated(n.node) && !verified(n.node) && recordOf(n.node).NodeUID == "" &&
		verifiedCondition(n.node).Reason != gateRemoved
	// A gate that came and went while no watch showed either was never there, for all that the controller can know.
	silent = silent && (c.showed == nil || c.showed(c.holder, n.node.UID, n.had.closed, n.had.opened, time.Time{}, time.Time{}))
	if !silent || n.node.DeletionTimestamp != nil || n.node.Annotations["node-ready/skip"] == "true" || c.settings.leavesOutNode(n.node) {
		return ""
	}
	return fmt.Sprintf("somebody else opened its gate at %s, and nothing shows it: %s", n.lost.Format("05.000"), describe(n.node))
}

// unprepared says which prerequisite of a node did not hold in its boot when it was released; empty for none. The
// releasing patch depends on the version that it was decided on, so that is before.
func (c *checker) unprepared(n *nodeSeen, before *corev1.Node, ch change) string {
	switch why := readyDriver(before); {
	case slices.ContainsFunc(before.Spec.Taints, isUninitialized):
		return "it is not initialized"
	case !c.settings.waits || why == "":
		return ""
	case conditionOf(before, driverReady) == corev1.ConditionTrue && ch.at.Sub(n.booted) > reportsWithin:
		return "" // what is from an earlier boot counts once the node was Ready for so long
	default:
		return why
	}
}

// grounds says why a failed attempt counts; empty where no worker of it left a report that names a failed check, ran on,
// or could not be ended.
func (c *checker) grounds(n *nodeSeen, number int, ch change) string {
	// One that ended while the record was under way counts as one that ran on.
	late := func(p *podSeen) bool {
		return !p.running.IsZero() && ch.at.Sub(p.running) > c.settings.timeout && (p.ended.IsZero() || ch.at.Sub(p.ended) < underWay)
	}
	switch {
	case c.some(n.node.UID, number, func(p *podSeen) bool { return p.ran != nil && p.ran.Exit == 1 && !p.ran.Unreported }):
		return "a report names a failed check"
	case c.some(n.node.UID, number, late):
		return "its worker ran on"
	}
	return ""
}

// unfounded checks that there is a ground for an action on a node.
func (c *checker) unfounded(n *nodeSeen, ch change, action string) {
	c.counts["actions"]++
	if n.ground == "" {
		c.fault(n, ch, "%s, and no report names a failed check, nor did a worker run on", action)
	}
}

// fails notes why a failed attempt counts.
func (c *checker) fails(n *nodeSeen, ch change) {
	if r := recordOf(n.node); r.LastReason == workerStuck && r.LastCheck == "" {
		n.ground = "its worker cannot be ended"
		c.stuck(n, ch)
		return
	}
	if n.ground = c.grounds(n, int(recordOf(n.node).Sequence), ch); n.ground == "" {
		c.fault(n, ch, "attempt %d is recorded as failed, and no worker of it failed", recordOf(n.node).Sequence)
	}
}

// seeAltered takes a change of a pod that the policy changed, and reports whether it is one. Such a pod is no worker.
func (c *checker) seeAltered(before, after *corev1.Pod, ch change) bool {
	p := c.altered[ch.key]
	switch {
	case after == nil && p != nil:
		delete(c.altered, ch.key)
		c.tellPod(p, ch, "(altered) is gone")
		return true
	case after == nil || after.Annotations[annotationAltered] == "":
		return false
	case p == nil || p.pod.UID != after.UID:
		p = &podSeen{since: ch.at, created: ch.revision}
		c.altered[ch.key] = p
		c.counts["pods altered"]++
	}
	p.pod = after
	if p.asked.IsZero() && after.DeletionTimestamp != nil {
		p.asked = ch.at
	}
	if before == nil || p.asked.Equal(ch.at) {
		c.tellPod(p, ch, "is altered (%s), to go: %t", after.Annotations[annotationAltered], !p.asked.IsZero())
	}
	return true
}

// stray says why a pod of the controller's is not where it belongs, and since when; empty where it is, or is to go.
func (c *checker) stray(p *podSeen) (why string, since time.Time) {
	on, n := p.pod.Spec.NodeName, c.ever[owner(p.pod)]
	switch how := p.pod.Annotations[annotationAltered]; {
	case !p.asked.IsZero() || !p.ended.IsZero():
	case how != "":
		return "a policy changed it when it was created (" + how + ")", p.since
	case on != "" && on != p.pod.Annotations[workerpod.AnnotationNode]:
		return "it is for another node than " + on, p.since
	case p.pod.Spec.PriorityClassName == "system-node-critical" && n != nil && !n.gone && !n.opened.IsZero():
		if since = p.since; n.opened.After(since) {
			since = n.opened
		}
		return "it is critical, and its node is open", since
	}
	return "", time.Time{}
}

// overdue faults pods that are where they do not belong, and gates that were lost in silence, for too long. It lists
// them where that is not certain yet: not all up to now was seen.
func (c *checker) overdue(now time.Time, certain bool) (some []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	led, able := c.removes()
	for key, p := range c.ours() {
		why, since := c.stray(p)
		if led.After(since) {
			since = led
		}
		within := straysWithin
		if c.calm.IsZero() && !c.settings.clear {
			within = 2 * straysWithin
		}
		if why == "" || !able || now.Sub(since) < within {
			continue
		}
		some = append(some, key)
		if certain {
			c.fault(c.ever[owner(p.pod)], change{key: key}, "the pod is still there after %s: %s", now.Sub(since).Round(time.Millisecond), why)
			p.asked = now
		}
	}
	for name, n := range c.nodes {
		why, since := c.inSilence(n), n.lost
		if c.calm.After(since) {
			since = c.calm
		}
		if why == "" || !able || c.calm.IsZero() || now.Sub(since) < saysWithin {
			continue
		}
		some = append(some, name)
		if certain {
			c.fault(n, change{key: name}, "after %s, %s", now.Sub(since).Round(time.Millisecond), why)
			n.lost = time.Time{}
		}
	}
	return some
}

// ours are the controller's pods that are there, altered or not, by key.
func (c *checker) ours() map[string]*podSeen {
	all := map[string]*podSeen{}
	for key, p := range c.pods {
		all[key] = p
	}
	for key, p := range c.altered {
		all[key] = p
	}
	return all
}

// removes is since when the controller that leads can delete pods and write conditions; false where it cannot.
func (c *checker) removes() (since time.Time, is bool) {
	mute := slices.ContainsFunc(c.endless, func(e endless) bool {
		return slices.ContainsFunc(e.rights, func(r right) bool { return r.reach() == everyNode })
	})
	if since = c.led; c.granted.After(since) {
		since = c.granted
	}
	return since, !mute && !c.led.IsZero() && c.refused.IsZero()
}

// recordsRestored checks a record that is written with a gate that is put back: it counts no attempt.
func (c *checker) recordsRestored(n *nodeSeen, after *corev1.Node, ch change) {
	c.counts["gates put back"]++
	if r := recordOf(after); r.Attempts != 0 || r.LastOutcome != attempt.Outcome("") {
		c.fault(n, ch, "the gate is put back with %+v", r)
	}
	if !c.settings.promises {
		c.fault(n, ch, "the gate is put back, and admission does not promise it")
	}
}
