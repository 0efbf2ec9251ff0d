package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// Guard can hold an action. Documentation, metrics and the order of evaluation follow from Guards.
type Guard struct {
	// Name is the guard's name in the record, events and the metric's label.
	Name string
	// Needs is the evidence that it is evaluated on.
	Needs []Need
	// About says when it holds, for the documentation.
	About string
	// holds returns why the action is held, or an empty string. It is nil for a guard that is evaluated elsewhere.
	holds func(in Input, ev Evidence, now time.Time) string
}

// Names of the guards.
const (
	GuardDoNotDelete         = "doNotDelete"
	GuardControlPlane        = "controlPlane"
	GuardNeverVerifiedOnly   = "neverVerifiedOnly"
	GuardMaxUnhealthy        = "maxUnhealthy"
	GuardMaxUnhealthyPerZone = "maxUnhealthyPerZone"
	GuardMaxInFlight         = "maxInFlight"
	GuardPaused              = "paused"
	GuardMaxDeletionsPerHour = "maxDeletionsPerHour"
	GuardSparePods           = "sparePodsOtherThanDaemonSets"
	GuardDryRun              = "dryRun"
	GuardControlProbe        = "controlProbe"
	GuardCondition           = "condition"
	GuardBootIDFlapping      = "bootIDFlapping"
)

// guards is the list that every look at a held node goes through.
var guards = Guards()

// Guards lists every guard, those with the cheapest evidence first. A guard that needs two kinds of evidence at
// different costs is listed twice. The dry run is last, so that it reports only actions that would really be taken.
func Guards() []Guard {
	return []Guard{
		{GuardDoNotDelete, nil, "an annotation of the node opts the node out, or the node is virtual", optedOut},
		{GuardControlPlane, nil,
			"the node is a control-plane node, and `includeControlPlane` is off", controlPlane},
		{GuardNeverVerifiedOnly, nil,
			"the node was verified before, so its taint quarantines it", verifiedBefore},
		{GuardBootIDFlapping, nil, "two machines report under the node's name: their boot IDs alternate",
			func(in Input, _ Evidence, _ time.Time) string { return flapping(in) }},
		{GuardCondition, nil, "with `remediation.action: condition`, another program already set the condition",
			foreignCondition},
		{GuardControlProbe, []Need{NeedProbes},
			"the same checks also fail on a verified node, or no verified node can run them", nil},
		{GuardPaused, []Need{NeedLedger},
			"`kubectl node-ready pause` stopped remediation: the ledger has the annotation `node-ready/paused`",
			paused},
		{GuardMaxDeletionsPerHour, []Need{NeedLedger},
			"the limit of actions in the last hour is reached, or the ledger cannot be read or is less than an hour old",
			actionsPerHour},
		{GuardMaxUnhealthy, []Need{NeedCounts},
			"too many nodes of the NodePool, or of the cluster, failed or were deleted within the window",
			unhealthy},
		{GuardMaxUnhealthyPerZone, []Need{NeedCounts},
			"too many nodes of the node's zone, over all pools, failed or were deleted within the window",
			unhealthyZone},
		{GuardMaxInFlight, []Need{NeedCounts},
			"the NodePool, or the cluster, has reached its limit of nodes that are being deleted or repaired",
			inFlight},
		{GuardSparePods, []Need{NeedWorkloads}, "the node runs ordinary pods", workloads},
		{GuardControlPlane, []Need{NeedWorkloads}, "the node runs a static pod of an API server or etcd, or its pods are " +
			"unknown, and `includeControlPlane` is off", controlPlanePods},
		{owner.Guard, []Need{NeedOwner},
			"the node's owner (its " + strings.Join(owner.Names(), " or ") + ") is missing or ambiguous",
			func(_ Input, ev Evidence, _ time.Time) string { return ev.Owner.Problem }},
		{GuardDoNotDelete, []Need{NeedOwner},
			"`karpenter.sh/do-not-disrupt` on its owner opts the node out", ownerOptedOut},
		{GuardDryRun, []Need{NeedOwner}, "`remediation.dryRun` is on: it reports what would be done", reportOnly},
	}
}

// GuardNames lists the guards' names, each once.
func GuardNames() []string {
	var names []string
	for _, g := range Guards() {
		if !slices.Contains(names, g.Name) {
			names = append(names, g.Name)
		}
	}
	return names
}

// held is what the guards say about an action: the first that holds it and its message, nothing if none does, or the
// evidence that they need first.
type held struct {
	guard, message string
	need           Need
}

// firstGuard evaluates the guards, unless the evidence shows what they say of it already.
func firstGuard(in Input, ev Evidence, now time.Time) held {
	if ev.held != nil {
		return *ev.held
	}
	for _, g := range guards {
		if g.holds == nil {
			continue
		}
		for _, need := range g.Needs {
			if !ev.has(need) {
				return held{need: need}
			}
		}
		if message := g.holds(in, ev, now); message != "" {
			return held{guard: g.Name, message: message}
		}
	}
	return held{}
}

func optedOut(in Input, _ Evidence, _ time.Time) string {
	switch {
	case in.Node.Virtual:
		return "the node's labels mark it as virtual, so no machine is behind it"
	case !in.Node.DoNotDelete:
		return ""
	}
	return fmt.Sprintf("the node carries %s, %s, %s or %s", marks.AnnotationDoNotDelete, owner.AnnotationDoNotDisrupt,
		owner.AnnotationDoNotRepair, marks.AnnotationCAPISkipRemediation)
}

func ownerOptedOut(_ Input, ev Evidence, _ time.Time) string {
	if ev.Owner.OptedOut == "" {
		return ""
	}
	return fmt.Sprintf("%s %s carries %s", ev.Owner.Kind, ev.Owner.Name, ev.Owner.OptedOut)
}

func controlPlane(in Input, _ Evidence, _ time.Time) string {
	if !protected(in) {
		return ""
	}
	return "no action is taken on a control-plane node unless nodeManagement.includeControlPlane is on"
}

// controlPlanePods finds the control plane that no label shows. In doubt, it holds.
func controlPlanePods(in Input, ev Evidence, _ time.Time) string {
	w := ev.Workloads
	switch {
	case in.Config.NodeManagement.IncludeControlPlane:
		return ""
	case w.Problem != "":
		return w.Problem
	case w.ControlPlane == "":
		return ""
	}
	return fmt.Sprintf("the node runs the static pod %s, so it is a control-plane node; no action is taken on it unless "+
		"nodeManagement.includeControlPlane is on", w.ControlPlane)
}

func verifiedBefore(in Input, _ Evidence, _ time.Time) string {
	r := in.Node.Record
	if !*in.Config.NodeManagement.Remediation.NeverVerifiedOnly || !r.MayHaveVerified() {
		return ""
	}
	return fmt.Sprintf("the node counts as verified since %s, so its taint quarantines it and no action is taken",
		r.VerifiedTime.UTC().Format(time.RFC3339))
}

func paused(_ Input, ev Evidence, _ time.Time) string {
	if ev.Ledger.Paused == "" {
		return ""
	}
	return fmt.Sprintf("remediation is paused (%s); to continue, run kubectl node-ready resume", ev.Ledger.Paused)
}

func workloads(in Input, ev Evidence, _ time.Time) string {
	if !*in.Config.NodeManagement.Remediation.SparePodsOtherThanDaemonSets {
		return ""
	}
	return ev.Workloads.occupied()
}

func reportOnly(in Input, ev Evidence, _ time.Time) string {
	if !in.Config.NodeManagement.Remediation.DryRun {
		return ""
	}
	if m := in.Config.NodeManagement.Remediation; m.Action == config.ActionCondition {
		return fmt.Sprintf("would set condition %s=%s", m.Condition.Type, m.Condition.Status)
	}
	return fmt.Sprintf("would delete %s %s", ev.Owner.Kind, ev.Owner.Name)
}

// LookBack is how far back the guards count actions: an hour, or the window if that is longer.
func LookBack(r config.Remediation) time.Duration { return max(time.Hour, r.Window.Duration) }

func actionsPerHour(in Input, ev Evidence, now time.Time) string {
	if ev.Ledger.Problem != "" {
		return ev.Ledger.Problem
	}
	r := in.Config.NodeManagement.Remediation
	// A dry run does nothing, and may not begin a ledger.
	if known := ev.Ledger.CompleteSince.Add(LookBack(r)); now.Before(known) && !r.DryRun {
		return fmt.Sprintf("the ledger of remediations starts at %s and shows no earlier actions, so no action is taken "+
			"until %s",
			ev.Ledger.CompleteSince.UTC().Format(time.RFC3339), known.UTC().Format(time.RFC3339))
	}
	if _, begun := began(in, ev, now); begun {
		return "" // the limit counted it then
	}
	limit, n := *r.MaxDeletionsPerHour, int32(0)
	for _, entry := range ev.Ledger.Entries {
		if now.Sub(entry.Time.Time) < time.Hour {
			n++
		}
	}
	if n < limit {
		return ""
	}
	return fmt.Sprintf("%d actions were taken within the last hour, the limit is %d", n, limit)
}

// began is when the node's action was let through, if it was: it is in the ledger since the node last passed, or the
// node carries the condition. Such an action is not held again by what began later.
func began(in Input, ev Evidence, now time.Time) (at time.Time, ok bool) {
	condition := in.Config.NodeManagement.Remediation.Action == config.ActionCondition
	if ev.Ledger == nil { // earlier guards load it
		return time.Time{}, false
	}
	if e := remediationEntry(in, *ev.Ledger, targetKind(in, ev), now); e != nil {
		return e.Time.Time, true
	}
	if !condition || !carriesCondition(in) {
		return time.Time{}, false
	}
	for _, c := range in.Node.RemediationConditions {
		if c.Type == in.Config.NodeManagement.Remediation.Condition.Type {
			at = c.LastTransitionTime.Time
		}
	}
	return at, true
}

func unhealthy(in Input, ev Evidence, _ time.Time) string {
	of := cmp.Or(in.Node.Owner.PoolName(), "the cluster")
	limit := in.Config.NodeManagement.Remediation.MaxUnhealthy
	return tooMany(in, ev, "maxUnhealthy", limit, of, group{pool: in.Node.Owner.Pool})
}

// unhealthyZone counts the node's zone over all pools, since an outage of a zone affects every pool in it. A node
// without a zone has no limit.
func unhealthyZone(in Input, ev Evidence, _ time.Time) string {
	limit := in.Config.NodeManagement.Remediation.MaxUnhealthyPerZone
	if limit == nil || in.Node.Zone == "" {
		return ""
	}
	return tooMany(in, ev, "maxUnhealthyPerZone", limit, "zone "+in.Node.Zone, group{zone: in.Node.Zone})
}

// tooMany says that more nodes of the group are unhealthy than the limit allows. It is empty if not. Unlike the limits
// on the rate of actions, it also holds an action that was let through, by what came after it: in an outage that grows,
// a repairer that has not acted yet must not act. A condition so goes, and returns once the outage is over.
func tooMany(in Input, ev Evidence, field string, limit *intstr.IntOrString, of string, g group) string {
	n := ev.Counts.of(in, g)
	// Rounded up, as Karpenter's node repair does (sigs.k8s.io/karpenter pkg/controllers/node/health).
	most, err := intstr.GetScaledValueFromIntOrPercent(limit, n.total, true)
	if err != nil {
		return fmt.Sprintf("nodeManagement.remediation.%s %q is not a number or percentage", field, limit.String())
	}
	if n.bad <= most {
		return ""
	}
	return fmt.Sprintf("%d of %d nodes of %s failed or were deleted within %s, more than %s (%d)",
		n.bad, n.total, of, in.Config.NodeManagement.Remediation.Window.Duration, limit.String(), most)
}

// maxNamed is how many nodes a message names.
const maxNamed = 3

// inFlight counts the nodes that still exist although an action on them is in the ledger or shows on them. A deletion
// that hangs, for example on a finalizer or an endless drain, blocks the next action. The record blocks it until the
// node is gone, and the ledger blocks it for the window. An action that was let through is held by earlier ones only.
func inFlight(in Input, ev Evidence, now time.Time) string {
	var names []string
	at, begun := began(in, ev, now)
	for _, n := range ev.Counts.inFlight {
		if n.uid != in.Node.UID && (!begun || n.began.Before(at)) &&
			slices.ContainsFunc(n.pools, func(pool string) bool { return samePool(in, pool) }) {
			names = append(names, n.name)
		}
	}
	limit := int(*in.Config.NodeManagement.Remediation.MaxInFlight)
	if len(names) < limit {
		return ""
	}
	list := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d nodes are still being deleted or repaired, the limit is %d: %s", len(names), limit, list)
}
