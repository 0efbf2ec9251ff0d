package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// component is the source of our events.
const component = "kube-node-ready-controller"

// maxEventMessage is the API server's limit of an event's note (k8s.io/kubernetes pkg/apis/core/validation/events.go).
const maxEventMessage = 1024

// tell creates events on the node. Their names derive from what they tell, so that the same transition is told once
// however often it is decided, by this process or its successor. client-go's recorder is not used because it counts
// repetitions in memory and drops events when a fleet arrives at once. An event that cannot be written is logged: the
// node's condition says the same.
func (r *Reconciler) tell(ctx context.Context, n *corev1.Node, events []decide.Event) {
	for _, e := range events {
		if r.DryRun {
			log.FromContext(ctx).Info("dry run: no event", "reason", e.Reason, "message", e.Message)
			continue
		}
		now := metav1.NewTime(r.Now())
		sum := sha256.Sum256([]byte(fmt.Sprintf("%s/%s/%d", n.UID, e.Reason, e.Sequence)))
		message := e.Message
		if len(message) > maxEventMessage {
			message = message[:maxEventMessage]
		}
		err := r.Client.Create(ctx, &corev1.Event{
			// Events of cluster-scoped objects live in "default" (k8s.io/client-go tools/record).
			ObjectMeta:          metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: n.Name[:min(len(n.Name), 200)] + "." + hex.EncodeToString(sum[:8])},
			InvolvedObject:      corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID},
			Type:                e.Type,
			Reason:              e.Reason,
			Message:             message,
			Source:              corev1.EventSource{Component: component},
			ReportingController: component,
			FirstTimestamp:      now,
			LastTimestamp:       now,
			Count:               1,
		})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			log.FromContext(ctx).Error(err, "event not written", "reason", e.Reason)
		}
	}
}
