package manager

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/event"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
	"github.com/kube-node-ready/kube-node-ready/internal/nodepool"
)

// emitter writes what was decided as Kubernetes events.
type emitter struct{ recorder *event.Recorder }

func newEvents(mgr ctrl.Manager, c client.Client, counters *metrics.Counters) (emitter, error) {
	r := event.New(c, counters.EventDropped)
	return emitter{recorder: r}, mgr.Add(r)
}

// kinds are an event's type, action and rank, by its reason.
var kinds = map[string]struct {
	eventType, action string
	rank              event.Rank
}{
	decide.EventStuck:            {corev1.EventTypeWarning, "Verify", event.RankDecision},
	decide.EventStarted:          {corev1.EventTypeNormal, "Verify", event.RankProgress},
	decide.EventPassed:           {corev1.EventTypeNormal, "Verify", event.RankOutcome},
	decide.EventFailed:           {corev1.EventTypeWarning, "Verify", event.RankOutcome},
	decide.EventInconclusive:     {corev1.EventTypeWarning, "Verify", event.RankOutcome},
	decide.EventExhausted:        {corev1.EventTypeWarning, "Verify", event.RankDecision},
	decide.EventHeld:             {corev1.EventTypeWarning, "Delete", event.RankDecision},
	decide.EventQuarantined:      {corev1.EventTypeWarning, "Quarantine", event.RankDecision},
	decide.EventBackfilled:       {corev1.EventTypeWarning, "AddTaint", event.RankDecision},
	decide.EventNodeClaimDeleted: {corev1.EventTypeWarning, "Delete", event.RankDecision},
	decide.EventNodeDeleted:      {corev1.EventTypeWarning, "Delete", event.RankDecision},
	decide.EventTaintAdded:       {corev1.EventTypeNormal, "AddTaint", event.RankOutcome},
	decide.EventTaintRemoved:     {corev1.EventTypeNormal, "RemoveTaint", event.RankOutcome},
	decide.EventTaintAdopted:     {corev1.EventTypeNormal, "AdoptTaint", event.RankProgress},
	decide.EventRuleFailed:       {corev1.EventTypeWarning, "ChangeTaint", event.RankDecision},
	decide.EventRuleRefused:      {corev1.EventTypeWarning, "Refuse", event.RankDecision},
	decide.EventRuleOverruled:    {corev1.EventTypeWarning, "Overrule", event.RankDecision},
	decide.EventRuleStandBack:    {corev1.EventTypeWarning, "StandBack", event.RankDecision},
	decide.EventRuleServed:       {corev1.EventTypeNormal, "Serve", event.RankDecision},
	decide.EventRuleOtherWriter:  {corev1.EventTypeWarning, "Serve", event.RankDecision},
	decide.EventTaintUnknown:     {corev1.EventTypeWarning, "Gate", event.RankDecision},
}

// Emit queues an event on the node.
func (e emitter) Emit(n *corev1.Node, at time.Time, what decide.Event) {
	e.recorder.Emit(n, at, eventOf(what))
}

// EmitRule queues an event on the rule.
func (e emitter) EmitRule(r *v1alpha1.NodeReadinessRule, at time.Time, what decide.Event) {
	e.recorder.EmitOn(corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: r.Name, UID: r.UID}, at, eventOf(what))
}

// emitPool queues an event on the NodePool.
func (e emitter) emitPool(p decide.NodePool, what decide.Event) {
	e.recorder.EmitOn(corev1.ObjectReference{APIVersion: nodepool.Kind.GroupVersion().String(), Kind: nodepool.Kind.Kind, Name: p.Name, UID: types.UID(p.UID)}, time.Now(), eventOf(what))
}

func eventOf(e decide.Event) event.Event {
	k := kinds[e.Reason]
	return event.Event{Type: k.eventType, Reason: e.Reason, Action: k.action, Note: e.Message, Key: e.Key, Rank: k.rank}
}
