package controller

import (
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Sights remembers when this process first saw what of a pod and of a node. Elapsed time is measured on this clock alone:
// those of kubelets, schedulers and the API server may be minutes off. It is a hint: a successor counts from its own first
// sight, which makes it slower and never wrong.
type Sights struct {
	// Now is the clock.
	Now func() time.Time
	// Rehearsing: this is a dry run, whose recorded pods are all the record there is.
	Rehearsing bool

	mu      sync.Mutex
	pods    map[types.UID]workerpod.Sight
	nodes   map[string]*nodeSight
	created map[string]created // by the name of a pod that no watch has shown yet
}

// created is a pod that this process began to create at a time.
type created struct {
	group string      // of a probe
	pod   *corev1.Pod // nil until the API server has answered
	at    time.Time
}

// unseenFor bounds how long a created pod may take to reach the cache. One that was deleted before it did never will.
const unseenFor = 15 * time.Second

// nodeSight is what was seen of a node of this UID.
type nodeSight struct {
	uid       types.UID
	underWay  []types.UID // pods of attempts that a watch has shown without a result, and has not shown to be gone
	vanished  int32
	rehearsed bool
	needed    time.Time // since when it must be verified
	wanted    decide.Wanted
	emitted   string           // key of the last event that no write of the node guards
	timeline  *decide.Timeline // of a node that was seen to be created with the taint, until it is released
	waits     []decide.Waiting // what the node waits for
}

// NewSights makes an account on the clock.
func NewSights(now func() time.Time, rehearsing bool) *Sights {
	return &Sights{Now: now, Rehearsing: rehearsing, pods: map[types.UID]workerpod.Sight{}, nodes: map[string]*nodeSight{}, created: map[string]created{}}
}

// Creating accounts for a pod that is about to be created: until a watch shows it (Shown), what it is made for must not be done twice.
// It returns false for a probe whose group has one on its way.
func (s *Sights) Creating(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	group := pod.Labels[workerpod.LabelProbeGroup]
	for _, c := range s.unseen() {
		if group != "" && c.group == group {
			return false
		}
	}
	s.created[pod.Name] = created{group: group, at: s.Now()}
	return true
}

// Created accounts for a pod as the API server took it. It must not be changed any more.
func (s *Sights) Created(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.created[pod.Name]; ok { // else it was shown meanwhile
		c.pod = pod
		s.created[pod.Name] = c
	}
}

// Shown drops a pod that a watch has shown, or that was not created.
func (s *Sights) Shown(pod string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.created, pod)
}

// Unseen are the pods, by name, that this process created or is creating, and that no watch has shown yet; nil where the API server
// has not answered.
func (s *Sights) Unseen() iter.Seq2[string, *corev1.Pod] {
	return func(yield func(string, *corev1.Pod) bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for name, c := range s.unseen() {
			if !yield(name, c.pod) {
				return
			}
		}
	}
}

// unseen drops what will never be shown, and returns the rest. s.mu must be held.
func (s *Sights) unseen() map[string]created {
	now := s.Now()
	maps.DeleteFunc(s.created, func(_ string, c created) bool { return now.Sub(c.at) > unseenFor })
	return s.created
}

// SeePod accounts for what a watch has shown of a pod.
func (s *Sights) SeePod(pod *corev1.Pod) workerpod.Observation {
	o := workerpod.Observe(pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	o.Seen = update(s.pods[pod.UID], o, s.Now())
	s.pods[pod.UID] = o.Seen
	if n := s.attempted(pod, o); n != nil {
		n.ends(pod)
		if o.Attempt.Result == nil {
			n.underWay = append(n.underWay, pod.UID)
		}
	}
	return o
}

// attempted is what was seen of the node that a pod's attempt is on; nil where there is nothing to account for: for a probe, for a result on
// a node of which nothing was seen, and for a pod that goes after its node, since what was seen of the one that has its name now must
// not go with it. s.mu must be held.
func (s *Sights) attempted(pod *corev1.Pod, o workerpod.Observation) *nodeSight {
	uid := types.UID(pod.Labels[workerpod.LabelNodeUID])
	n := s.nodes[o.Node]
	if o.Purpose != workerpod.PurposeVerify || n == nil && o.Attempt.Result != nil || n != nil && n.uid != uid {
		return nil
	}
	return s.node(o.Node, uid)
}

// ends drops a pod from those under way.
func (n *nodeSight) ends(pod *corev1.Pod) {
	n.underWay = slices.DeleteFunc(n.underWay, func(uid types.UID) bool { return uid == pod.UID })
}

// UnderWay are the pods of a node's attempts that a watch has shown without a result, and has not shown to be gone.
func (s *Sights) UnderWay(name string, uid types.UID) []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[name]; n != nil && n.uid == uid {
		return slices.Clone(n.underWay)
	}
	return nil
}

// observe is a pod as it was seen. What no watch has shown yet counts as seen now. An end is not witnessed until a watch has
// shown it: of two pods the one that is looked at last may have ended first.
func (s *Sights) observe(pod *corev1.Pod) workerpod.Observation {
	o := workerpod.Observe(pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.pods[pod.UID]
	o.Seen = update(seen, o, s.Now())
	o.Seen.Witnessed = seen.Witnessed && o.Attempt.Result != nil
	return o
}

func update(seen workerpod.Sight, o workerpod.Observation, now time.Time) workerpod.Sight {
	known := !seen.First.IsZero()
	if !known {
		seen.First = now
	}
	if o.State == workerpod.Running && seen.Running.IsZero() {
		seen.Running = now
	}
	switch {
	case o.Unschedulable == "":
		seen.Unschedulable = time.Time{}
	case seen.Unschedulable.IsZero():
		seen.Unschedulable = now
	}
	switch {
	case o.Attempt.Result == nil: // an image that could not be pulled at first is no result of the run after it
		seen.Result, seen.Witnessed = time.Time{}, false
	case seen.Result.IsZero():
		seen.Result, seen.Witnessed = now, known
	}
	return seen
}

// PodGone drops a pod. An attempt that vanished without a result is remembered until a later one is seen.
func (s *Sights) PodGone(o workerpod.Observation, pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, pod.UID)
	if n := s.attempted(pod, o); n != nil {
		n.ends(pod)
		if o.Attempt.Result == nil {
			n.vanished = o.Attempt.Number
		}
	}
}

// NodeGone drops a node.
func (s *Sights) NodeGone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
}

// node is what was seen of a node; that of an earlier node of the name is dropped. s.mu must be held.
func (s *Sights) node(name string, uid types.UID) *nodeSight {
	n := s.nodes[name]
	if n == nil || n.uid != uid {
		n = &nodeSight{uid: uid}
		s.nodes[name] = n
	}
	return n
}

func (s *Sights) ofNode(name string, uid types.UID) (vanished int32, rehearsed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[name]; n != nil && n.uid == uid {
		return n.vanished, n.rehearsed
	}
	return 0, false
}

// neededSince is when it was first seen that the node must be verified; zero for one that need not be.
func (s *Sights) neededSince(in decide.Input) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if !decide.Subject(in) || !decide.Needed(in, now) {
		if n := s.nodes[in.Node.Name]; n != nil {
			n.needed = time.Time{}
		}
		return time.Time{}
	}
	n := s.node(in.Node.Name, types.UID(in.Node.UID))
	if n.needed.IsZero() {
		n.needed = now
	}
	return n.needed
}

// Rehearse remembers that a node had its attempt in a dry run.
func (s *Sights) Rehearse(in decide.Input) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node(in.Node.Name, types.UID(in.Node.UID)).rehearsed = true
}

// Quiet is decide.Quiet with the account of what the node should say.
func (s *Sights) Quiet(in decide.Input, plan decide.Plan) (write bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if plan.Condition == nil {
		if n := s.nodes[in.Node.Name]; n != nil {
			n.wanted = decide.Wanted{}
		}
		return false, 0
	}
	n := s.node(in.Node.Name, types.UID(in.Node.UID))
	write, n.wanted, wait = decide.Quiet(*plan.Condition, in.Node.Condition, n.wanted, s.Now())
	return write, wait
}

// Once reports whether an event of the key is a new one for the node.
func (s *Sights) Once(in decide.Input, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.node(in.Node.Name, types.UID(in.Node.UID))
	if n.emitted == key {
		return false
	}
	n.emitted = key
	return true
}

// Born begins the timeline of a node that was created a moment ago.
func (s *Sights) Born(in decide.Input) {
	if !in.Node.Gated || !decide.Subject(in) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node(in.Node.Name, types.UID(in.Node.UID)).timeline = decide.NewTimeline(s.Now())
}

// See accounts for what was decided about a node.
func (s *Sights) See(in decide.Input, plan decide.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[in.Node.Name]
	if n == nil && len(plan.Waits) == 0 {
		return
	}
	n = s.node(in.Node.Name, types.UID(in.Node.UID))
	n.waits = plan.Waiting(in)
	switch {
	case n.timeline == nil:
	case !in.Node.Gated || !decide.Subject(in):
		n.timeline = nil // somebody else released it, or excluded it
	default:
		n.timeline.See(in, plan, s.Now())
	}
}

// Released ends the timeline of a node that was released; nil where it has none, as one that was under way when this process
// began to lead.
func (s *Sights) Released(in decide.Input) map[decide.Phase]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[in.Node.Name]
	if n == nil || n.uid != types.UID(in.Node.UID) || n.timeline == nil {
		return nil
	}
	spent := n.timeline.End(s.Now())
	n.timeline = nil
	return spent
}

// Waiting counts the nodes that wait, by what for.
func (s *Sights) Waiting() map[decide.Waiting]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := map[decide.Waiting]int{}
	for _, n := range s.nodes {
		for _, w := range n.waits {
			count[w]++
		}
	}
	return count
}
