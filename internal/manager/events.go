package manager

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/event"
	"github.com/kube-node-ready/kube-node-ready/internal/metrics"
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
	decide.EventNodeClaimDeleted: {corev1.EventTypeWarning, "Delete", event.RankDecision},
	decide.EventNodeDeleted:      {corev1.EventTypeWarning, "Delete", event.RankDecision},
}

// Emit queues an event on the node.
func (e emitter) Emit(n *corev1.Node, at time.Time, what decide.Event) {
	k := kinds[what.Reason]
	e.recorder.Emit(n, at, event.Event{Type: k.eventType, Reason: what.Reason, Action: k.action, Note: what.Message, Key: what.Key, Rank: k.rank})
}
