package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
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

const (
	// awaitedFor is how long a decision waits for a watch to show a created pod. It counts from the API server's answer,
	// because a request may be retried for longer.
	awaitedFor = 10 * time.Second
	// countedFor is how long a created pod that no watch shows takes a slot. A node that still needs it finds the pod by
	// its name long before. The rest was deleted before a watch could show it.
	countedFor = time.Minute
)

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

// Answered records the API server's answer to the request that asks announced, with the pod as it was returned. Only a
// refusal proves that there is no pod. Any other error may follow a write to the store: a timeout, an error of a later
// step, a connection that broke. AlreadyExists leaves it open until the pod of the name is read.
func (s *Tracker) Answered(pod *corev1.Pod, err error) {
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

// Created records a pod of ours that the API server has created for this process, as it was returned. Its attempt is
// under way, even if a watch shows it only after it has ended.
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

// inherits records a pod that an earlier leader created. Nobody knows when it was under way first.
func (s *Tracker) inherits(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, shown := s.pods[pod.UID]; !shown {
		a := askedFor(pod)
		a.pod, a.at = pod.UID, s.Now()
		s.asked[pod.Name] = a
	}
}

// awaits reports whether the next decision about a node must wait until a watch shows a pod on it. A pod in doubt is
// found by its name if its attempt is the next one, or if that attempt was recorded. It is waited for if its number is
// beyond: somebody removed the record since.
func (s *Tracker) awaits(n marks.Facts) (waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, next := s.Now(), n.Record.Sequence+1
	for name, a := range s.asked {
		switch {
		case a.on.UID != n.UID:
		case a.older(awaitedFor, now):
			delete(s.asked, name)
		case !a.inDoubt() || a.number > next:
			waits = true
		}
	}
	return waits
}

// awaitsProbe reports whether a probe of the group is in flight, or created and not shown.
func (s *Tracker) awaitsProbe(group string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.probes(group, "")
}

// probes is awaitsProbe for probes with another name. s.mu must be held.
func (s *Tracker) probes(group, other string) bool {
	now := s.Now()
	for name, a := range s.asked {
		if a.group == group && name != other && !a.inDoubt() && !a.older(awaitedFor, now) {
			return true
		}
	}
	return false
}

// unshown are the names of the pods that take a slot before the cache shows them. A pod in doubt takes none. Its node
// takes one again with the next try, within seconds.
func (s *Tracker) unshown() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	for name, a := range s.asked {
		switch {
		case a.older(countedFor, now):
			delete(s.asked, name)
		case !a.inDoubt():
			names = append(names, name)
		}
	}
	return names
}

// shows ends the entry of a pod that a watch has shown. Before the API server has answered, a pod that was known before
// is an earlier one of the name. s.mu must be held.
func (s *Tracker) shows(pod *corev1.Pod, known bool) {
	if a, ok := s.asked[pod.Name]; ok && (a.pod == pod.UID || a.pod == "" && !known) {
		delete(s.asked, pod.Name)
	}
}
