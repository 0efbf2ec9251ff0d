package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The kinds of faults that do not end while their run lasts.
const (
	kubeletDead    = "kubelet dead for good"
	containerStuck = "container that cannot be ended"
	runtimeHung    = "container runtime hung for good"
	imageMissing   = "image that never comes"
	podsRefused    = "webhook refuses pods for good"
	quotaFull      = "quota full for good"
	claimStuck     = "NodeClaim whose finalizer never goes"
	poolFails      = "most of a pool fails for good"
	rightsRefused  = "verbs refused for good"
	conditionTaken = "another program writes the condition"
)

// endlessKind is one of them.
type endlessKind struct {
	name   string
	weight int
	// why is what the condition of a node that it concerns has to say.
	why *regexp.Regexp
}

var endlessKinds = []endlessKind{
	{kubeletDead, 3, regexp.MustCompile(`NodeLost|[Kk]ubelet|Ready`)},
	{containerStuck, 3, regexp.MustCompile(`WorkerStuck`)},
	{runtimeHung, 2, regexp.MustCompile(`StartTimeout|terminating`)},
	{imageMissing, 2, regexp.MustCompile(`[Ii]mage`)},
	{podsRefused, 2, regexp.MustCompile(`PodRefused|chaos\.example`)},
	{quotaFull, 1, regexp.MustCompile(`PodRefused|quota`)},
	{claimStuck, 2, regexp.MustCompile(`NodeClaim|delet|ChecksFailed|RetriesExhausted`)},
	{poolFails, 0, regexp.MustCompile(`ChecksFailed|RetriesExhausted|delet`)}, // drawn in place of the others
	// Not every node gets as far: one may be opted out, run ordinary pods, or have no other node of its profile.
	{conditionTaken, 0, regexp.MustCompile(`another program set|held by (doNotDelete|sparePods|controlProbe)`)},
	{rightsRefused, 0, regexp.MustCompile(`forbidden|cannot|PodRefused|RulesUnavailable`)}, // drawn beside the others
}

func kindOf(name string) endlessKind {
	return endlessKinds[slices.IndexFunc(endlessKinds, func(k endlessKind) bool { return k.name == name })]
}

// noneWeight is that of a run without a fault of these kinds.
const noneWeight = 3

// endless is one fault that does not end.
type endless struct {
	endlessKind
	at    time.Duration // from the beginning of the schedule
	began time.Time     // zero before
	// slots are the nodes that it is about; of a webhook that nobody serves and of a quota, all.
	slots [slots]bool
	// rights are refused.
	rights []right
	// code is what the webhook answers; 0 where nobody serves it.
	code int
	// closes: the gate of its nodes is closed once more, beside their label being removed.
	closes bool
	// restarts: the controllers are killed, and start with the fault.
	restarts bool
	// asked: somebody deletes the NodeClaim; otherwise its node fails until the controller does.
	asked bool
}

// concerns reports whether the fault keeps a node from being verified, where there are rules or not. It is all that the
// checker knows of which node a fault concerns.
func (e endless) concerns(n *corev1.Node, rules bool) bool {
	if e.name == rightsRefused {
		return slices.ContainsFunc(e.rights, func(r right) bool { return r.concerns(n, rules) })
	}
	slot := slotOf(n.Name)
	return slot >= 0 && e.slots[slot]
}

// mute reports whether the controller cannot say so in a condition.
func (e endless) mute() bool { return slices.ContainsFunc(e.rights, right.mute) }

// codes are what the webhook answers.
var codes = []int{0, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusTooManyRequests,
	http.StatusInternalServerError, http.StatusServiceUnavailable}

// drawEndless draws a seed's faults that do not end, and how many workers there may be at once. Where kinds of faults
// are named, it draws one of these.
func drawEndless(seed uint64, rights []right, only []string) (drawn []endless, atOnce int) {
	rng := rand.New(rand.NewPCG(seed, 9)) //nolint:gosec // no secret
	kinds, sum, refuses := slices.Clone(endlessKinds), noneWeight, rng.IntN(2) == 0
	if len(only) > 0 {
		kinds = slices.DeleteFunc(kinds, func(k endlessKind) bool { return !slices.Contains(only, k.name) })
		sum, refuses = 0, slices.Contains(only, rightsRefused)
	}
	for _, k := range kinds {
		sum += k.weight
	}
	atOnce = []int{0, 2, 2}[rng.IntN(3)]
	// A guard is strained for as long as a run lasts, and by nothing else.
	strains := rand.New(rand.NewPCG(seed, 10)).IntN(4) == 0 //nolint:gosec // no secret
	if len(only) == 0 && strains || slices.Contains(only, poolFails) {
		return []endless{kindOf(poolFails).draw(rng)}, 0
	}
	n := rng.IntN(max(1, sum))
	for _, k := range kinds {
		if n -= k.weight; n < 0 && k.weight > 0 {
			drawn = append(drawn, k.draw(rng))
			refuses = refuses && k.name != quotaFull // that concerns all already
			break
		}
	}
	if refuses {
		e := kindOf(rightsRefused).draw(rng)
		e.rights = drawRights(rng, rights)
		drawn = append(drawn, e)
	}
	return drawn, atOnce
}

// drawRights draws one of the rights that every node needs, or three of the others: beside the first no node were left
// to show what the others do.
func drawRights(rng *rand.Rand, all []right) (some []right) {
	needed := rng.IntN(5) == 0
	all = slices.DeleteFunc(slices.Clone(all), func(r right) bool { return (r.reach() == everyNode) != needed })
	for _, i := range rng.Perm(len(all))[:map[bool]int{true: 1, false: 3}[needed]] {
		some = append(some, all[i])
	}
	return some
}

func (k endlessKind) draw(rng *rand.Rand) endless {
	e := endless{endlessKind: k, at: between(rng, 0, 4*time.Second),
		closes: rng.IntN(2) == 0, restarts: rng.IntN(2) == 0, asked: rng.IntN(2) == 0}
	concerned := rng.Perm(slots)[:2]
	switch k.name {
	case podsRefused:
		e.code = codes[rng.IntN(len(codes))]
	case claimStuck:
		concerned = []int{rng.IntN(managed)}
	case poolFails:
		concerned = rng.Perm(managed)[1:]
	case rightsRefused:
		concerned = nil
	}
	if k.name == quotaFull || k.name == podsRefused && e.code == 0 {
		concerned = rng.Perm(slots)
	}
	for _, slot := range concerned {
		e.slots[slot] = true
	}
	return e
}

// String says what was drawn.
func (e endless) String() string {
	var nodes []string
	for slot, is := range e.slots {
		if is {
			nodes = append(nodes, nodeName(slot))
		}
	}
	return fmt.Sprintf("%s after %s: nodes %v, rights %v, code %d, closes %t, restarts %t, asked %t",
		e.name, e.at.Round(time.Millisecond), nodes, e.rights, e.code, e.closes, e.restarts, e.asked)
}

// step begins the fault in a schedule.
func (e endless) step() step {
	return step{at: e.at, fault: fault{name: e.name, do: func(_ context.Context, w *world, _ *rand.Rand) error {
		return w.beginEndless(e)
	}}}
}
