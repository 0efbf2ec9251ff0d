package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

const (
	// WarningsPerSecond and warningsBurst bound the lists of events of all pods. The API server reads every event of the
	// namespace for each of them, because it keeps no index of the selected fields.
	WarningsPerSecond = 1
	warningsBurst     = 10
	// warningsWithin is how long one list may take. It only adds to a message.
	warningsWithin = 5 * time.Second
	// maxWarnings bounds the events of one list. A kubelet counts repeated events in one object.
	maxWarnings = 50
)

// Warnings reads what others, mostly the kubelet, reported about a pod that does not start.
type Warnings struct {
	// Live reads from the API server.
	Live      client.Reader
	Namespace string
	Tracker   *Tracker
	Limit     flowcontrol.PassiveRateLimiter
}

// NewWarningsLimit is the limit of Warnings.
func NewWarningsLimit() flowcontrol.PassiveRateLimiter {
	return flowcontrol.NewTokenBucketPassiveRateLimiter(WarningsPerSecond, warningsBurst)
}

// Last describes the last Warning event of the node's current pod. A warning that was read before is returned again,
// unless fresh is set. It is empty if there is none, or if too many were read just now. If it cannot be read, the node
// is decided without it.
func (w Warnings) Last(ctx context.Context, in decide.Input, fresh bool) string {
	pod := decide.CurrentPod(in.Node.Record, in.Pods)
	if pod == nil {
		return ""
	}
	uid := types.UID(pod.UID)
	known := w.Tracker.Warning(uid)
	if known != "" && !fresh || !w.Limit.TryAccept() {
		return known
	}
	ctx, cancel := context.WithTimeout(ctx, warningsWithin)
	defer cancel()
	var list corev1.EventList
	err := w.Live.List(ctx, &list, client.InNamespace(w.Namespace), client.Limit(maxWarnings),
		client.MatchingFields{"involvedObject.uid": pod.UID, "type": corev1.EventTypeWarning})
	if err != nil {
		log.FromContext(ctx).V(1).Info("the events of a pod that does not start cannot be read", "pod", pod.Name,
			"error", err.Error())
		if why := apierr.Refusal(err, apierr.Read); why != "" {
			return attempt.Text("its events cannot be read: " + why)
		}
		return known
	}
	if last := lastWarning(list.Items); last != "" {
		known = last
		w.Tracker.SetWarning(uid, last)
	}
	return known
}

// lastWarning describes the latest of a pod's Warning events; empty if there is none.
func lastWarning(events []corev1.Event) string {
	var last *corev1.Event
	for i := range events {
		if e := &events[i]; e.Type == corev1.EventTypeWarning && (last == nil || lastSeen(e).After(lastSeen(last))) {
			last = e
		}
	}
	if last == nil {
		return ""
	}
	count := last.Count
	if last.Series != nil {
		count = last.Series.Count
	}
	times := ""
	if count > 1 {
		times = fmt.Sprintf(", %d times", count)
	}
	return attempt.Text(fmt.Sprintf("last warning (%s%s): %s", last.Reason, times, strings.TrimSpace(last.Message)))
}

// lastSeen is when an event happened last, by the clock of its reporter.
func lastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

// Warning is the last Warning event of a pod that was read; empty if none was.
func (s *Tracker) Warning(pod types.UID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.warnings[pod]
}

// SetWarning remembers the last Warning event of a pod until the pod is gone.
func (s *Tracker) SetWarning(pod types.UID, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pods[pod]; ok {
		s.warnings[pod] = text
	}
}
