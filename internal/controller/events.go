package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// component is the source of our events.
const component = "kube-node-ready-controller"

// maxEventMessage is the API server's limit of an event's note (k8s.io/kubernetes pkg/apis/core/validation/events.go).
const maxEventMessage = 1024

const (
	// eventsPerSecond and eventBurst are low on purpose: events are for people, and in a burst of nodes must not compete with
	// what releases them. A thousand nodes at once are told of within half a minute, twenty at once.
	eventsPerSecond = 80
	eventBurst      = 40
	// eventQueue holds what a fleet that arrives at once has to tell; a full queue slows reconciles down and loses nothing.
	eventQueue = 4096
	// eventDrain is how long a stopping controller goes on writing what it has queued.
	eventDrain = 5 * time.Second
)

// Events writes events on nodes, beside the reconciles. Their names derive from what they tell, so that the same
// transition is told once however often it is decided, by this process or its successor. client-go's recorder is not used
// because it counts repetitions in memory and drops events when a fleet arrives at once. An event that cannot be written is
// logged: the node's condition says the same.
type Events struct {
	client client.Client
	queue  chan *corev1.Event
}

// NewEvents makes the writer; Start runs it.
func NewEvents(c client.Client) *Events {
	return &Events{client: c, queue: make(chan *corev1.Event, eventQueue)}
}

// Start writes events until ctx is done, and then what is still queued.
func (e *Events) Start(ctx context.Context) error {
	limit := flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventBurst)
	for {
		select {
		case ev := <-e.queue:
			_ = limit.Wait(ctx) // fails only where ctx ends, and then the rest is not to wait
			e.write(context.WithoutCancel(ctx), ev)
		case <-ctx.Done():
			e.drain(ctx)
			return nil
		}
	}
}

func (e *Events) drain(ctx context.Context) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventDrain)
	defer cancel()
	for {
		select {
		case ev := <-e.queue:
			e.write(last, ev)
		default:
			return
		}
	}
}

func (e *Events) write(ctx context.Context, ev *corev1.Event) {
	if err := e.client.Create(ctx, ev); err != nil && !apierrors.IsAlreadyExists(err) {
		log.FromContext(ctx).Error(err, "event not written", "node", ev.InvolvedObject.Name, "reason", ev.Reason)
	}
}

// tell queues events on the node.
func (r *Reconciler) tell(ctx context.Context, n *corev1.Node, events []decide.Event) {
	for _, e := range events {
		if r.DryRun {
			log.FromContext(ctx).Info("dry run: no event", "reason", e.Reason, "message", e.Message)
			continue
		}
		select {
		case r.Events.queue <- eventOn(n, e, r.Now()):
		case <-ctx.Done():
			return
		}
	}
}

func eventOn(n *corev1.Node, e decide.Event, at time.Time) *corev1.Event {
	now := metav1.NewTime(at)
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", n.UID, e.Reason, e.Sequence))
	return &corev1.Event{
		// Events of cluster-scoped objects live in "default" (k8s.io/client-go tools/record).
		ObjectMeta:          metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: n.Name[:min(len(n.Name), 200)] + "." + hex.EncodeToString(sum[:8])},
		InvolvedObject:      corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID},
		Type:                e.Type,
		Reason:              e.Reason,
		Message:             strings.ToValidUTF8(e.Message[:min(len(e.Message), maxEventMessage)], ""),
		Source:              corev1.EventSource{Component: component},
		ReportingController: component,
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
	}
}
