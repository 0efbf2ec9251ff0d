package controller

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// asked is a pod that the API server was asked to create and that no watch has shown. It is in one of three states:
//   - in flight: the API server has not answered
//   - created: it has answered with the pod
//   - in doubt: its answer leaves open whether there is a pod, or there was none
//
// An entry ends with the first event of its pod, with an answer that refuses the pod, and with its node.
type asked struct {
	on     workerpod.Target // its name and UID alone
	number int32            // of the attempt; 0 for a probe
	group  string           // of a probe
	pod    types.UID        // empty unless it is created
	at     time.Time        // when the API server answered; zero while the request is in flight
}

// awaitedFor is how long a created pod is awaited. It counts from the API server's answer, because a request may be
// retried for longer.
const awaitedFor = 10 * time.Second

func askedFor(pod *corev1.Pod) asked {
	o := workerpod.Observe(pod)
	return asked{on: workerpod.TargetOf(pod), number: o.Attempt.Number, group: o.Group}
}

func (a asked) inDoubt() bool { return a.pod == "" && !a.at.IsZero() }

// older reports whether the API server answered that long ago.
func (a asked) older(than time.Duration, now time.Time) bool {
	return !a.at.IsZero() && now.Sub(a.at) >= than
}

// asks records that the API server is asked for a pod. It returns false for a probe while another one of its group is
// in flight, or created and not shown.
func (s *Tracker) asks(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := askedFor(pod)
	if a.group != "" && s.probes(a.group, pod.Name) {
		return false
	}
	s.asked[pod.Name] = a
	return true
}

// answered records the API server's answer to a request for a pod. Only a refusal proves that there is no pod. Any
// other error may follow a write to the store: a timeout, an error of a later step, or a connection that broke. The
// same is true of AlreadyExists, until the pod of the name is read.
func (s *Tracker) answered(pod *corev1.Pod, err error) {
	if err == nil {
		s.Created(pod)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.asked[pod.Name]
	switch {
	case !ok: // a watch has shown it
	case apierr.Of(err, apierr.Create) == apierr.Refused:
		delete(s.asked, pod.Name)
	default:
		a.pod, a.at = "", s.Now()
		s.asked[pod.Name] = a
	}
}

// Created records a pod of ours that the API server has created for this process: it is in flight, even if a watch shows
// it only after it has ended. pod is as the API server returned it.
func (s *Tracker) Created(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pods[pod.UID]; !ok {
		s.pods[pod.UID] = workerpod.FirstSeen{First: s.Now(), UnderWay: true}
	}
	if a, ok := s.asked[pod.Name]; ok {
		a.pod, a.at = pod.UID, s.Now()
		s.asked[pod.Name] = a
	}
}

// probes reports whether a probe of the group with another name is in flight, or created and not shown. s.mu must be
// held.
func (s *Tracker) probes(group, other string) bool {
	now := s.Now()
	for name, a := range s.asked {
		if a.group == group && name != other && !a.inDoubt() && !a.older(awaitedFor, now) {
			return true
		}
	}
	return false
}

// shows ends the entry of a pod that a watch has shown. Before the API server has answered, a pod that was known before
// is an earlier one of the name. s.mu must be held.
func (s *Tracker) shows(pod *corev1.Pod, known bool) {
	if a, ok := s.asked[pod.Name]; ok && (a.pod == pod.UID || a.pod == "" && !known) {
		delete(s.asked, pod.Name)
	}
}

// Unaccounted are the pods with a pending reservation that neither the map nor the cache has. Tests compare the two.
func (v *View) Unaccounted(ctx context.Context) (names []string) {
	for name, have := range v.reserved.unshown(v.synced()) {
		on := &corev1.Node{}
		on.UID = types.UID(have.nodeUID)
		shown, _ := v.podsOf(ctx, on)
		if !slices.ContainsFunc(shown, func(p corev1.Pod) bool { return p.Name == name }) && !v.Tracker.hasAsked(name) {
			names = append(names, name)
		}
	}
	return names
}

func (s *Tracker) hasAsked(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.asked[name]
	return ok
}

func (r *reservations) unshown(synced string) map[string]reservation {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]reservation{}
	for _, have := range r.of {
		if have.name != "" && have.pending(synced) {
			all[have.name] = have
		}
	}
	return all
}
