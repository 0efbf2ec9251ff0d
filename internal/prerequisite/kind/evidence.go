package kind

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Evidence keeps apart what objects report about a node from what they reported about an earlier node of its name, or
// in an earlier boot. It is not stored. A new process begins again, which is slower. It knows of a reboot by the node's
// record, and so not of one before the first attempt.
type Evidence struct {
	mu    sync.Mutex
	nodes map[string]*seenNode
}

// seenNode is what was seen of a node under one UID and boot ID.
type seenNode struct {
	uid, boot string
	// rebooted: objects may still report what was so in an earlier boot.
	rebooted bool
	// ready is since when the node is Ready; zero while it is not.
	ready time.Time
	// signs are what objects reported first, by their IDs.
	signs map[string]string
}

// Object is an object that reports about a node.
type Object struct {
	// ID tells it from others of the node.
	ID string
	// Created is when the API server created it.
	Created metav1.Time
	// Sign changes when the object reports again.
	Sign string
}

// Look records the state of a node. verdict is the boot ID that its last verdict is for; empty if it has none.
func (e *Evidence) Look(n *corev1.Node, verdict string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.nodes == nil {
		e.nodes = map[string]*seenNode{}
	}
	uid, boot := string(n.UID), n.Status.NodeInfo.BootID
	s := e.nodes[n.Name]
	if s == nil || s.uid != uid || s.boot != boot {
		earlier := s != nil && s.uid == uid && s.boot != "" || verdict != "" && verdict != boot
		s = &seenNode{uid: uid, boot: boot, rebooted: earlier, signs: map[string]string{}}
		e.nodes[n.Name] = s
	}
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	switch {
	case !ready:
		s.ready = time.Time{}
	case s.ready.IsZero():
		s.ready = now
	}
}

// Stale says why what an object reports about a node does not count yet, and when it will at the latest; zero if that
// is not known. It is empty if the report counts. Look comes first. Call it for each object at each look, also for one
// that does not report what is waited for, so that a change is noticed.
func (e *Evidence) Stale(n *corev1.Node, o Object, now time.Time) (why string, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, old := e.nodes[n.Name], o.Created.Before(&n.CreationTimestamp)
	if s == nil || !old && !s.rebooted {
		return "", time.Time{}
	}
	first, known := s.signs[o.ID]
	if !known {
		s.signs[o.ID] = o.Sign
	}
	switch {
	case known && first != o.Sign, !s.ready.IsZero() && now.Sub(s.ready) >= ReportsWithin:
		return "", time.Time{}
	case old:
		why = "is older than the node"
	default:
		why = "may report from before the reboot"
	}
	if !s.ready.IsZero() {
		until = s.ready.Add(ReportsWithin)
	}
	return why + " and counts once it reports again, or once the node has been Ready for " + ReportsWithin.String(), until
}

// Forget drops a node that is gone, or whose record names its boot from now on.
func (e *Evidence) Forget(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.nodes, name)
}
