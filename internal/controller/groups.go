package controller

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// The nodes of a group (decide.ProbeGroup) wait for each other: a pass of one shows that what the others failed for may
// be over. All of it is hints. A new leader starts without any, and its nodes are tried at their own times.

const (
	// wakeEvery is the shortest time after which a pass makes a node due again. For so long, nothing of a group must have
	// passed before a pass makes its exhausted nodes due: in a busy group, they are no sign of an outage.
	wakeEvery = time.Minute
	// WakePause is the time between two calls of NextWoken: ten nodes a second.
	WakePause = 100 * time.Millisecond
)

// trackedGroup is what was observed of a group with nodes that wait for it.
type trackedGroup struct {
	passed  time.Time // when one of its verifications or probes last passed, or its first node began to wait
	nodes   map[string]*waitingNode
	sharing int // how many of the nodes share a failure
}

// waitingNode is a node that a pass of its group makes due.
type waitingNode struct {
	uid                types.UID
	group              string
	sharing, exhausted bool
	once               bool // it was woken as an exhausted node: until it passes, that happens only once
	queued             bool
}

// observeGroup records whether the node waits for its group.
func (s *Tracker) observeGroup(in decide.Input) {
	sharing, exhausted := decide.Waits(in)
	s.mu.Lock()
	defer s.mu.Unlock()
	name := in.Node.Name
	if !sharing && !exhausted {
		s.waitsNoMore(name)
		return
	}
	group, uid := decide.ProbeGroup(in), types.UID(in.Node.UID)
	w := s.waiting[name]
	if w == nil || w.uid != uid || w.group != group {
		s.waitsNoMore(name)
		w = &waitingNode{uid: uid, group: group}
		s.waiting[name] = w
		if s.groups[group] == nil {
			s.groups[group] = &trackedGroup{passed: s.Now(), nodes: map[string]*waitingNode{}}
		}
		s.groups[group].nodes[name] = w
	}
	g := s.groups[group]
	if w.sharing != sharing {
		g.sharing += map[bool]int{true: 1, false: -1}[sharing]
	}
	w.sharing, w.exhausted = sharing, exhausted
}

// waitsNoMore drops a node. s.mu must be held.
func (s *Tracker) waitsNoMore(name string) {
	w := s.waiting[name]
	if w == nil {
		return
	}
	g := s.groups[w.group]
	if delete(g.nodes, name); w.sharing {
		g.sharing--
	}
	if len(g.nodes) == 0 {
		delete(s.groups, w.group)
	}
	delete(s.waiting, name)
}

// ofGroup adds what was observed of the node's group to in.
func (s *Tracker) ofGroup(in *decide.Input) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.groups) > 0 {
		if g := s.groups[decide.ProbeGroup(*in)]; g != nil {
			in.Sharing = g.sharing
		}
	}
	if n := s.nodes[in.Node.Name]; n != nil && n.uid == types.UID(in.Node.UID) {
		in.GroupPassed = n.woken
	}
}

// GroupPassed records that a verification of the node's group passed. NextWoken then returns the nodes that wait for
// that, one by one. Those are the ones that share a failure. If nothing of the group had passed for wakeEvery, they are
// also the exhausted ones.
func (s *Tracker) GroupPassed(in decide.Input) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.groups) > 0 {
		s.groupPassed(decide.ProbeGroup(in))
	}
}

// groupPassed is GroupPassed by the group's name. s.mu must be held.
func (s *Tracker) groupPassed(group string) {
	g := s.groups[group]
	if g == nil {
		return
	}
	now := s.Now()
	quiet := now.Sub(g.passed) >= wakeEvery
	if g.passed = now; !quiet && g.sharing == 0 {
		return
	}
	var due []string
	for name, w := range g.nodes {
		n := s.nodes[name]
		rested := n == nil || n.uid != w.uid || now.Sub(n.woken) >= wakeEvery
		switch {
		case w.queued:
		case w.sharing && rested:
			w.queued, due = true, append(due, name)
		case w.exhausted && quiet && !w.once:
			w.once, w.queued, due = true, true, append(due, name)
		}
	}
	slices.Sort(due)
	s.toWake = append(s.toWake, due...)
}

// NextWoken is the next node that a pass of its group made due; ok is false if there is none. Call it once in
// WakePause.
func (s *Tracker) NextWoken() (name string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.toWake) > 0 {
		name, s.toWake = s.toWake[0], s.toWake[1:]
		if w := s.waiting[name]; w != nil && w.queued { // else it waits no more
			w.queued = false
			s.node(name, w.uid).woken = s.Now()
			return name, true
		}
	}
	s.toWake = nil
	return "", false
}
