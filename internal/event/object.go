package event

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/result"
)

// reportingController is the source of our events.
const reportingController = "kube-node-ready-controller"

// Limits of the API server, in bytes (k8s.io/kubernetes pkg/apis/core/validation/events.go).
const (
	maxNote              = 1024
	maxReportingInstance = 128
)

// hashBytes of the hash are in an event's name: 64 bits, for the few events of one node within the hour that they are
// kept.
const hashBytes = 8

// object makes the Event. Its deprecated fields and its series stay unset: the API server refuses the first in
// events.k8s.io/v1, and an event that is written once is no series.
func object(instance string, of corev1.ObjectReference, at time.Time, e decide.Event) *eventsv1.Event {
	return &eventsv1.Event{
		// Nodes and rules have no namespace, but an event must have one. client-go puts events of such objects into
		// "default" (tools/events/event_recorder.go). Apart from that, the API server accepts them only in kube-system.
		ObjectMeta:          metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name(of, e)},
		Regarding:           of,
		EventTime:           metav1.NewMicroTime(at),
		Type:                e.Reason.Type,
		Reason:              e.Reason.Name,
		Action:              e.Reason.Action,
		Note:                cut(e.Message, maxNote),
		ReportingController: reportingController,
		ReportingInstance:   instance,
	}
}

// name derives from the content of the event, so that the same event is written once. The object's name in it is for
// people. The hash keeps apart objects that had the same name, and long names that are cut at the same place.
func name(of corev1.ObjectReference, e decide.Event) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", of.UID, e.Reason.Name, e.Key))
	suffix := "." + hex.EncodeToString(sum[:hashBytes])
	prefix := of.Name[:min(len(of.Name), validation.DNS1123SubdomainMaxLength-len(suffix))]
	// A label of a name ends in a letter or a digit, and a cut may fall anywhere.
	return strings.TrimRight(prefix, "-.") + suffix
}

// instance names this process among the replicas, as client-go does (tools/events/event_broadcaster.go). In a pod,
// the host's name is the pod's.
func instance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // the field is required, and an event without its pod is better than none
	}
	return cut(reportingController+"-"+host, maxReportingInstance)
}

// cut returns s, made valid UTF-8 and at most limit bytes long. A cut is marked.
func cut(s string, limit int) string { return result.Clip(strings.ToValidUTF8(s, "\uFFFD"), limit) }
