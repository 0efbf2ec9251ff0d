package chaos

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// The rule for faults that do not end. A node that none of them concerns is verified as soon as without them, within
// patience. One that is concerned is verified, or its condition names the reason within sayWithin; and all that the
// controller writes is what these nodes may cost.
const (
	// sayWithin is how long a node may wait without its condition naming the reason. It counts from the last fault that
	// ended.
	sayWithin = time.Minute
	// attemptCost is the largest number of writes that an attempt costs. These are its pod, the condition at its start and
	// end, the record, the end of the pod, an event, and a repetition of one of them after a conflict. There is an attempt
	// every maxBackoffSeconds, which is mostBackoff here.
	attemptCost = 8
	mostBackoff = time.Second
	// restCost is what may be written in passing by others than those nodes: probes that go, rules' status.
	restCost = 10
	// watched is for how long writes are counted.
	watched = 5 * time.Second
)

// costs is how many writes the controller may make within d where so many nodes cannot be verified. With the default of
// maxBackoffSeconds, 30, that is 960 an hour for each.
func costs(concerned int, d time.Duration) int {
	return restCost + concerned*attemptCost*int((d+mostBackoff-1)/mostBackoff)
}

// begin notes that a fault begins which does not end.
func (c *checker) begin(e endless) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endless = append(c.endless, e)
}

// calmed notes that no other faults are left.
func (c *checker) calmed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calm = time.Now()
}

// concerning are the faults that keep a node from being verified.
func (c *checker) concerning(n *corev1.Node) (some []endless) {
	rules := false
	for _, r := range c.rules {
		rules = rules || !r.gone
	}
	for _, e := range c.endless {
		if e.concerns(n, rules) {
			some = append(some, e)
		}
	}
	return some
}

// concernedSlot is concerning for a slot, whether a node is there or not.
func (c *checker) concernedSlot(slot int) bool {
	n := &corev1.Node{}
	if have := c.nodes[nodeName(slot)]; have != nil {
		n = have.node
	}
	n = n.DeepCopy()
	n.Name = nodeName(slot)
	return len(c.concerning(n)) > 0
}

func verifiedCondition(n *corev1.Node) corev1.NodeCondition {
	for _, have := range n.Status.Conditions {
		if have.Type == "node-ready/Verified" {
			return have
		}
	}
	return corev1.NodeCondition{}
}

// explains reports whether the node's condition names one of these reasons.
func explains(n *corev1.Node, why []*regexp.Regexp) bool {
	condition := verifiedCondition(n)
	for _, r := range why {
		if condition.Status != corev1.ConditionTrue && r.MatchString(condition.Reason+": "+condition.Message) {
			return true
		}
	}
	return false
}

// hears notes when a node that is concerned has last said why.
func (c *checker) hears(n *nodeSeen, at time.Time) {
	var why []*regexp.Regexp
	for _, e := range c.concerning(n.node) {
		why = append(why, e.why)
	}
	if explains(n.node, why) {
		n.said = at
	}
}

// free reports whether a node is verified, and no gate is closed.
func free(n *corev1.Node) bool { return verified(n) && !gated(n) }

// silent says what is missing at a node that faults concern: it is verified, or has named the reason since no other
// fault was left. Where it did not within sayWithin, that is a fault. One that leaves the controller without the right
// to say so is excused.
func (c *checker) silent(n *nodeSeen, faults []endless, now time.Time, say func(string, ...any)) {
	since, replaced := c.calm, n.waits.After(c.calm)
	if replaced {
		since = n.waits
	}
	condition := verifiedCondition(n.node)
	sound := free(n.node) && condition.Status == corev1.ConditionTrue
	if sound || slices.ContainsFunc(faults, endless.mute) || unaccounted(n.node) {
		return
	}
	if c.hears(n, since.Add(1)); n.said.After(since) { // what it says still, it said before
		return
	}
	what := fmt.Sprintf("%s does not say why it is not verified (%s): %s, condition %s %s %s",
		n.node.Name, faults[0].name, describe(n.node), condition.Status, condition.Reason, condition.Message)
	if !replaced {
		say("%s", what)
	}
	if now.Sub(since) > sayWithin {
		c.fault(n, change{key: n.node.Name}, "after %s, %s", sayWithin, what)
	}
}

// endsWithin is how long a worker's end may take beyond its grace period before its node is blamed: what the build tag
// chaos makes of the controller's minute.
const endsWithin = 4 * time.Second

// stuck checks that a node is blamed for a worker that really cannot be ended: somebody asked for that long ago, and it
// still runs.
func (c *checker) stuck(n *nodeSeen, ch change) {
	for _, p := range c.pods {
		// An observer that is late by a second sees the time shorter by that.
		runs := owner(p.pod) == n.node.UID && !p.running.IsZero() && p.ended.IsZero()
		after := time.Duration(ptr.Deref(p.pod.DeletionGracePeriodSeconds, 0))*time.Second + endsWithin
		if runs && !p.asked.IsZero() && ch.at.Sub(p.asked) > after-time.Second {
			return
		}
	}
	c.fault(n, ch, "a worker is recorded as stuck, and none is")
}

// lets checks that nobody forgets a container that cannot be ended: with its pod gone, another worker could start
// beside it.
func (c *checker) lets(p *podSeen, ch change) {
	n := c.ever[owner(p.pod)]
	if n == nil || n.gone || p.removed || p.running.IsZero() || !p.ended.IsZero() {
		return
	}
	for _, e := range c.endless {
		stuck := e.name == containerStuck && e.slots[slotOf(n.node.Name)]
		if stuck && p.running.After(e.began.Add(time.Second)) {
			c.fault(n, ch, "worker %s is deleted without grace, and its container cannot have ended", p.pod.Name)
		}
	}
}

// waiting counts the nodes that are not verified. Those that wait at the beginning of a time may pass within it.
func (c *checker) waiting() (count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if gated(n.node) || !verified(n.node) {
			count++
		}
	}
	return count
}

// expensive says where the controller has written more than the nodes that wait may cost.
func expensive(writes, waiting int, d time.Duration) error {
	if most := costs(waiting, d); writes > most {
		return fmt.Errorf("%d writes within %s while %d nodes cannot be verified, the limit is %d",
			writes, d.Round(time.Millisecond), waiting, most)
	}
	return nil
}
