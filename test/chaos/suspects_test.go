package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// The marks of requests, written out as those in marks_test.go are.
const (
	verifyRequested = "node-ready/verify-requested"
	verifyCompleted = "node-ready/verify-completed"
	verifyResult    = "node-ready/verify-result"
	// accusedEvery is the shortest time between two verifications of a node that are answers to requests, and from a pass
	// to a verification for a condition of the type that it cleared.
	accusedEvery = time.Minute
)

// suspectTypes are the conditions of a detector that make a verified node suspect.
var suspectTypes = []corev1.NodeConditionType{"chaos.example/Broken", "chaos.example/Slow"}

// suspicionFaults are drawn beside all others, by a schedule of their own.
var suspicionFaults = []fault{
	{"detector reports some nodes", 2, func(_ context.Context, w *world, rng *rand.Rand) error {
		var err error // every schedule begins with this fault
		for _, slot := range rng.Perm(slots)[:3] {
			err = errors.Join(err, w.condition(slot, suspectTypes[rng.IntN(2)], corev1.ConditionTrue))
		}
		return err
	}},
	{"detector reports a problem, or its end", 5, func(_ context.Context, w *world, rng *rand.Rand) error {
		status := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse}[rng.IntN(3)]
		return w.condition(rng.IntN(slots), suspectTypes[rng.IntN(2)], status)
	}},
	{"detector reports a node that fails", 5, func(_ context.Context, w *world, rng *rand.Rand) error {
		slot := rng.IntN(slots)
		w.mu.Lock()
		w.ill[slot] = time.Now().Add(between(rng, 6*time.Second, 12*time.Second))
		w.mu.Unlock()
		return w.condition(slot, suspectTypes[rng.IntN(2)], corev1.ConditionTrue)
	}},
	{"detector flaps", 3, func(_ context.Context, w *world, rng *rand.Rand) error {
		slot, of := rng.IntN(slots), suspectTypes[rng.IntN(2)]
		var err error
		for end := time.Now().Add(between(rng, time.Second, 5*time.Second)); time.Now().Before(end) && w.ctx.Err() == nil; {
			err = w.condition(slot, of, corev1.ConditionTrue)
			pause(w.ctx, between(rng, 0, 1200*time.Millisecond))
			err = errors.Join(err, w.condition(slot, of, corev1.ConditionFalse))
			pause(w.ctx, between(rng, 0, 600*time.Millisecond))
		}
		return err
	}},
	{"false rollout of a detector", 1, func(_ context.Context, w *world, rng *rand.Rand) error {
		of, which := suspectTypes[rng.IntN(2)], rng.Perm(slots)[:slots-rng.IntN(3)]
		var err error
		for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
			for _, slot := range which {
				err = errors.Join(err, w.condition(slot, of, status))
			}
			pause(w.ctx, between(rng, time.Second, 5*time.Second))
		}
		return err
	}},
	{"verification requested", 4, func(_ context.Context, w *world, rng *rand.Rand) error {
		return w.mark(rng.IntN(slots), annotated(verifyRequested, fmt.Sprint(rng.Uint64())))
	}},
}

// acquit ends what detectors report of a node, and takes back a request that cannot be answered before its minute is
// over.
func (w *world) acquit(slot int) error {
	n := &corev1.Node{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: nodeName(slot)}, n); err != nil {
		return client.IgnoreNotFound(err)
	}
	var err error
	for _, of := range suspectTypes {
		if conditionOf(n, of) == corev1.ConditionTrue {
			err = errors.Join(err, w.condition(slot, of, corev1.ConditionFalse))
		}
	}
	if id := n.Annotations[verifyRequested]; id != n.Annotations[verifyCompleted] && recordOf(n).RequestTime != nil {
		err = errors.Join(err, w.mark(slot, annotated(verifyRequested, "")))
	}
	return client.IgnoreNotFound(err)
}

// referral is what was seen of a node's suspicions and requests.
type referral struct {
	// cleared is what a pass cleared last, by the condition's type.
	cleared map[corev1.NodeConditionType]clearance
	// requests are the revisions in which requests were made, by their IDs.
	requests map[string]int64
	// asked is when a request was last acted on.
	asked time.Time
}

// clearance is a suspicion that a pass cleared, and when.
type clearance struct {
	marks.Suspicion
	at time.Time
}

// reported reports whether the node shows what the suspicion is about.
func reported(n *corev1.Node, s marks.Suspicion) bool {
	for _, c := range n.Status.Conditions {
		if s.Same(c) {
			return true
		}
	}
	return false
}

func sameTransition(a, b marks.Suspicion) bool {
	return a.Type == b.Type && a.Status == b.Status &&
		a.Transition != nil && b.Transition != nil && a.Transition.Equal(*b.Transition)
}

// suspected checks how a change affects the suspicion. A suspicion begins only for what the node shows, and once for
// each transition and request. Its answer must be the result of an attempt that began after the request.
func (c *checker) suspected(n *nodeSeen, before, after *corev1.Node, ch change) {
	if id := after.Annotations[verifyRequested]; id != before.Annotations[verifyRequested] {
		if n.requests == nil {
			n.requests = map[string]int64{}
		}
		n.requests[id] = ch.revision
	}
	if before.Annotations[annotationRecord] != after.Annotations[annotationRecord] {
		n.referral = referral{requests: n.requests}
		return
	}
	was, is := recordOf(before), recordOf(after)
	if is.Sequence == was.Sequence && is.Suspicion != nil {
		c.accuses(n, before, after, ch)
	}
	if is.Sequence != was.Sequence && is.LastOutcome == attempt.Passed {
		if s := was.Suspicion; s != nil && s.Type != "" {
			if n.cleared == nil {
				n.cleared = map[corev1.NodeConditionType]clearance{}
			}
			n.cleared[s.Type] = clearance{*s, ch.at}
			c.counts["suspicions cleared"]++
		}
	}
	if is.Sequence != was.Sequence && is.LastOutcome == attempt.Failed && was.Suspicion != nil && was.MayHaveVerified() {
		c.counts["suspicions confirmed"]++
		atStake := !gated(before) || was.Attempts < min(2, c.settings.maxRetries)
		if atStake && !is.Probed && is.LastReason != workerStuck {
			c.fault(n, ch, "attempt %d fails under a suspicion, and no probe passed beside it", is.Sequence)
		}
	}
	c.answers(n, before, after, ch)
}

// accuses checks a suspicion that a record has, and had not before.
func (c *checker) accuses(n *nodeSeen, before, after *corev1.Node, ch change) {
	was, is := recordOf(before), recordOf(after)
	s, old := *is.Suspicion, marks.Suspicion{}
	if was.Suspicion != nil {
		old = *was.Suspicion
	}
	if s.Type != "" && !sameTransition(s, old) {
		c.counts["suspicions"]++
		have, cleared := n.cleared[s.Type]
		// What was cleared was decided on some time before it was seen.
		cooling := cleared && ch.at.Sub(have.at) < c.settings.cooldown-underWay
		again := cooling && (sameTransition(s, have.Suspicion) || ch.at.Sub(have.at) < accusedEvery-underWay)
		switch {
		case cooling && !gated(before) && gated(after):
			c.fault(n, ch, "the gate is closed for %s, which a pass cleared %s ago", s.Type, ch.at.Sub(have.at))
		case !reported(before, s):
			c.fault(n, ch, "it is suspected for %s=%s, which it does not show", s.Type, s.Status)
		case was.LastOutcome != attempt.Passed && !was.MayHaveVerified() && !n.spoilt: // one that is spoilt may have passed
			c.fault(n, ch, "it is suspected for %s, and it never passed", s.Type)
		case again:
			c.fault(n, ch, "it is suspected again for %s, which a pass cleared %s ago", s.Type, ch.at.Sub(have.at))
		}
	}
	if s.Request != "" && s.Request != old.Request {
		c.counts["requests acted on"]++
		if before.Annotations[verifyRequested] != s.Request {
			c.fault(n, ch, "verification %s begins, and %q is requested", s.Request, before.Annotations[verifyRequested])
		}
		if since := ch.at.Sub(n.asked); since < accusedEvery-underWay {
			c.fault(n, ch, "two requests are acted on within %s", since)
		}
		n.asked = ch.at
	}
	if was.Suspicion == nil && !gated(before) && gated(after) {
		c.counts["gates closed under a suspicion"]++
		c.crowded(n, ch, "the gate is closed under a suspicion")
	}
}

// answers checks the answer to a request.
func (c *checker) answers(n *nodeSeen, before, after *corev1.Node, ch change) {
	id := after.Annotations[verifyCompleted]
	if id == before.Annotations[verifyCompleted] {
		return
	}
	c.counts["requests answered"]++
	was, is := recordOf(before), recordOf(after)
	asked, known := n.requests[id]
	late := func(p *podSeen) bool { return p.created > asked }
	ran := is.LastOutcome != attempt.Inconclusive && is.LastReason != workerStuck
	switch {
	case !known || was.Suspicion == nil || was.Suspicion.Request != id:
		c.fault(n, ch, "request %q is answered, and nobody made it", id)
	case is.Sequence == was.Sequence || after.Annotations[verifyResult] != string(is.LastOutcome):
		c.fault(n, ch, "request %s is answered by %q without such an attempt", id, after.Annotations[verifyResult])
	case ran && !c.some(after.UID, int(is.Sequence), late):
		c.fault(n, ch, "request %s is answered by an attempt from before it", id)
	}
}

// unanswered says what is left of suspicions and requests on a node.
func (c *checker) unanswered(n *nodeSeen, say func(string, ...any)) {
	if s := recordOf(n.node).Suspicion; s != nil {
		say("%s is suspected still: %+v", n.node.Name, *s)
	}
	if id := n.node.Annotations[verifyRequested]; id != "" && id != n.node.Annotations[verifyCompleted] {
		say("%s waits for the answer to request %s", n.node.Name, id)
	}
}

// describeRepair says what the record has of a suspicion, and which conditions of detectors and of ours are there.
func describeRepair(n *corev1.Node) string {
	r, what := recordOf(n), ""
	if s := r.Suspicion; s != nil {
		what = fmt.Sprintf("suspected=%s%s of %v", s.Type, s.Request, s.Transition)
	}
	for _, have := range n.Status.Conditions {
		if have.Reason == ours || slices.Contains(suspectTypes, have.Type) && have.Status == corev1.ConditionTrue {
			what += " " + string(have.Type)
		}
	}
	return what
}
