package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
)

// The rule for the condition that asks a repairer to act: it is on no node for which a reason is known why it should not
// be there, for longer than goesWithin. That time counts while the controllers can remove it: one of them leads, and the
// API server lets it. In runs that are not clear, it counts once all other faults have ended.

// kindCondition is the kind of its entry in the ledger.
const kindCondition = "Condition"

// guardCondition is the guard that holds an action because another program set the condition.
const guardCondition = "condition"

// recovers is how long after the last fault a controller may still repeat what failed.
const recovers = 10 * time.Second

// asks is what was seen of the condition on a node.
type asks struct {
	// unasked is since when the node has a condition that it should not have; zero where it has none.
	unasked time.Time
	// entered: the ledger has it since the last pass. ever: it had it once.
	entered, ever bool
}

// unasked says why a node should not have one of its conditions with our reason, as far as that is known; empty where
// it may have all.
func (c *checker) unasked(n *nodeSeen) string {
	for _, have := range ourConditions(n.node) {
		if c.settings.leavesOutNode(n.node) && have.Message == forgedMessage {
			continue // for all that the ledger shows, it is another installation's
		}
		if why := c.unaskedFor(n.node, have.Type); why != "" {
			return fmt.Sprintf("%s, and %s", have.Type, why)
		}
	}
	return ""
}

func (c *checker) unaskedFor(n *corev1.Node, of corev1.NodeConditionType) string {
	s, r := c.settings, recordOf(n)
	switch out, stale := optedOut(n), c.stale(n); {
	case n.DeletionTimestamp != nil:
		return "" // it goes with the node
	case s.off || s.dryRun || s.action != setCondition || s.condition != of:
		return fmt.Sprintf("the configuration has action %s, type %s, off %t, dry run %t", s.action, s.condition, s.off, s.dryRun)
	case s.leavesOutNode(n):
		return "the selector leaves the node out"
	case out != "":
		return "the node has " + out
	case !c.paused.IsZero():
		return "remediation is paused"
	case r.LastOutcome == "" || r.LastOutcome == attempt.Passed || r.Attempts != s.maxRetries:
		return fmt.Sprintf("the record has %d failures, the last outcome %q", r.Attempts, r.LastOutcome)
	case r.BootID != boot(n):
		return "the node rebooted since"
	case stale != "":
		return stale
	case s.neverVerifiedOnly && r.MayHaveVerified():
		return "the node was verified"
	}
	return ""
}

// weigh notes whether a node has a condition that it should not have.
func (c *checker) weigh(n *nodeSeen, at time.Time) {
	if c.unasked(n) == "" {
		n.unasked = time.Time{}
	} else if n.unasked.IsZero() {
		n.unasked = at
	}
}

func (c *checker) weighAll(at time.Time) {
	for _, n := range c.nodes {
		c.weigh(n, at)
	}
}

// able is since when the controllers can remove conditions; false where they cannot.
func (c *checker) able() (since time.Time, is bool) {
	mute := slices.ContainsFunc(c.endless, func(e endless) bool {
		return slices.ContainsFunc(e.rights, func(r right) bool { return r.reach() == everyNode })
	})
	if mute || c.led.IsZero() || !c.refused.IsZero() || c.calm.IsZero() && !c.settings.clear {
		return since, false
	}
	since = c.led
	if c.granted.After(since) {
		since = c.granted
	}
	if calm := c.calm.Add(recovers); !c.settings.clear && calm.After(since) {
		since = calm
	}
	return since, true
}

// overstays lists the nodes that have had a condition for too long, and faults them where that is certain: all up to
// now was seen.
func (c *checker) overstays(now time.Time, certain bool) (some []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, able := c.able()
	for name, n := range c.nodes {
		from := n.unasked
		if since.After(from) {
			from = since
		}
		if n.unasked.IsZero() || !able || now.Sub(from) < goesWithin {
			continue
		}
		some = append(some, name)
		if certain {
			c.fault(n, change{key: name}, "%s after it should have gone, the node has condition %s: %s",
				now.Sub(from).Round(time.Millisecond), c.unasked(n), describe(n.node))
			n.unasked = now
		}
	}
	return some
}

// watchConditions faults conditions that overstay, and what else is not corrected in time, until the run ends.
func (w *world) watchConditions() {
	for ; w.ctx.Err() == nil; pause(w.ctx, 200*time.Millisecond) {
		for _, late := range []func(time.Time, bool) []string{w.check.overstays, w.check.overdue} {
			if now := time.Now(); len(late(now, false)) > 0 && w.observer.catchUp(w.ctx) == nil {
				late(now, true)
			}
		}
	}
}

// configure notes that the controllers start with other settings now.
func (c *checker) configure(s settings, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.former, c.settings, c.configured, c.led = c.settings, s, now, time.Time{}
	for _, n := range c.nodes {
		if c.former.leavesOutNode(n.node) || s.leavesOutNode(n.node) {
			n.skipped = now
		}
		n.sound = now // failures under other checks count for nothing
	}
	c.weighAll(now)
}

// restarted notes that no controller leads until one is elected.
func (c *checker) restarted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.led = time.Time{}
}

// unsettledConfiguration reports whether what is seen now may have been decided on by controllers with other settings.
func (c *checker) unsettledConfiguration(ch change) bool { return ch.at.Sub(c.configured) < underWay }

// ranFor reports whether a worker ran the checks that the node with these labels must pass.
func (c *checker) ranFor(checks string, labels map[string]string, ch change) bool {
	return checks == c.settings.checksOf(labels) || c.unsettledConfiguration(ch) && checks == c.former.checksOf(labels)
}

// stale says that the record's failures are of other checks than the node has; empty where they are not.
func (c *checker) stale(n *corev1.Node) string {
	ran, known := c.ran[recordOf(n).Checks]
	if now := c.settings.checksOf(n.Labels); known && ran != now {
		return fmt.Sprintf("the failures are of %s, and its checks are %s", ran, now)
	}
	return ""
}

// asked checks what a change makes of the conditions on a node.
func (c *checker) asked(n *nodeSeen, before, after *corev1.Node, ch change) {
	if was, is := foreignCondition(before), foreignCondition(after); was != nil &&
		(is == nil || is.Status != was.Status || !is.LastTransitionTime.Equal(&was.LastTransitionTime)) {
		c.fault(n, ch, "the condition that another program wrote is changed: %+v", is)
	}
	was, is := recordOf(before), recordOf(after)
	if is.Held == guardCondition && was.Held != guardCondition && !n.spoilt {
		c.counts["actions held for another program's condition"]++
		if foreignCondition(before) == nil {
			c.fault(n, ch, "an action is held for another program's condition, and there is none: %s", is.HeldMessage)
		}
	}
	if is.Sequence != was.Sequence && is.LastOutcome == attempt.Passed {
		n.entered = false
	}
	had := ourConditions(before)
	for _, has := range ourConditions(after) {
		switch {
		case slices.ContainsFunc(had, func(c corev1.NodeCondition) bool { return c.Type == has.Type }):
		case has.Message == forgedMessage:
			c.counts["conditions forged"]++
		default:
			c.sets(n, before, has, ch)
		}
	}
	for _, has := range had {
		if conditionOf(after, has.Type) == corev1.ConditionUnknown {
			c.counts["conditions removed, since "+cmp.Or(c.unaskedFor(before, has.Type), "another guard holds")]++
		}
	}
	c.weigh(n, ch.at)
}

// sets checks a condition that the controller sets. The ledger has it already, and nothing is known why the node should
// not have it.
func (c *checker) sets(n *nodeSeen, before *corev1.Node, has corev1.NodeCondition, ch change) {
	c.counts["conditions set"]++
	r := recordOf(before)
	why := c.unaskedFor(before, has.Type)
	switch {
	case !n.entered && (!n.spoilt || !n.ever):
		c.fault(n, ch, "condition %s is set, and the ledger does not have it", has.Type)
	case c.unsettledConfiguration(ch), !c.paused.IsZero() && ch.at.Sub(c.paused) < underWay:
	case why != "":
		c.fault(n, ch, "condition %s is set, and %s", has.Type, why)
	case r.LastOutcome != attempt.Failed:
		c.fault(n, ch, "condition %s is set after %+v", has.Type, r)
	case n.passed && c.settings.neverVerifiedOnly:
		c.fault(n, ch, "condition %s is set, although the node was verified", has.Type)
	case c.busy(n, ch):
		c.fault(n, ch, "condition %s is set, although the node runs ordinary pods", has.Type)
	case !r.Probed && c.settings.controlProbe:
		c.fault(n, ch, "condition %s is set, and no probe passed beside the last failure", has.Type)
	}
	c.crowded(n, ch, "a condition is set")
	c.unfounded(n, ch, "a condition is set")
}

// enters checks a condition that is entered in the ledger: once for each node since it passed.
func (c *checker) enters(n *nodeSeen, e ledger.Entry, ch change) {
	if e.Kind != kindCondition {
		return
	}
	c.counts["conditions entered in the ledger"]++
	if n.entered {
		c.fault(n, ch, "a condition is entered in the ledger twice, and the node did not pass between: %+v", e)
	}
	n.entered, n.ever = true, true
}

// crowded checks that so few nodes are unhealthy that one more may be.
func (c *checker) crowded(n *nodeSeen, ch change, what string) {
	bad, total := c.outage(n, ch)
	if most := (total*c.settings.maxUnhealthy + 99) / 100; len(bad) > most {
		c.fault(n, ch, "%s while %d of %d nodes failed or were deleted, the limit is %d:\n  %s",
			what, len(bad), total, most, strings.Join(bad, "\n  "))
	}
}

// refusesBriefly notes that the right to conditions is refused for a while, or that this is over. After that a
// controller's next try is as far away as the refusal was long: its backoff doubles.
func (c *checker) refusesBriefly(refused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if refused {
		c.refused = now
		return
	}
	c.granted, c.refused = now.Add(now.Sub(c.refused)), time.Time{}
}

// entryID is what tells an entry of the ledger from others.
type entryID struct {
	node types.UID
	kind string
	at   int64
}

func idOf(e ledger.Entry) entryID { return entryID{types.UID(e.UID), e.Kind, e.Time.Unix()} }
