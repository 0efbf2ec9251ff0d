package controller

import (
	"sync"
	"time"
)

// unseenFor bounds how long a created pod may take to reach the cache. One that was deleted before it did never will.
const unseenFor = 15 * time.Second

// slots bounds how many worker pods are alive at once. Pods are counted in the cache; slots only adds those that were
// created and not seen there yet. After a restart there are none of these, and the caches are full before the first decision.
type slots struct {
	limit int // 0: none

	mu       sync.Mutex
	unseen   map[string]time.Time // creation by name of pod
	waiting  []string             // names of nodes, first come first served
	isQueued map[string]bool
}

// take reserves a place for the pod name, given how many pods the cache holds alive. It must be given back by
// seen. A node that gets none is remembered for next.
func (s *slots) take(pod, nodeName string, alive func() int, now time.Time) bool {
	if s.limit <= 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unseen == nil {
		s.unseen, s.isQueued = map[string]time.Time{}, map[string]bool{}
	}
	for name, at := range s.unseen {
		if now.Sub(at) > unseenFor {
			delete(s.unseen, name)
		}
	}
	if _, ok := s.unseen[pod]; ok || alive()+len(s.unseen) < s.limit {
		s.unseen[pod] = now
		return true
	}
	if !s.isQueued[nodeName] {
		s.isQueued[nodeName] = true
		s.waiting = append(s.waiting, nodeName)
	}
	return false
}

// seen tells that the cache knows the pod now, or that it was not created.
func (s *slots) seen(pod string) {
	if s.limit <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unseen, pod)
}

// forget drops a node that is gone.
func (s *slots) forget(nodeName string) {
	if s.limit <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.isQueued, nodeName)
}

// next returns the node to look at again now that a pod ended.
func (s *slots) next() []string {
	if s.limit <= 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) > 0 {
		name := s.waiting[0]
		s.waiting = s.waiting[1:]
		if s.isQueued[name] {
			delete(s.isQueued, name)
			return []string{name}
		}
	}
	return nil
}

// lost remembers attempts whose unfinished pod was seen to vanish. It is a hint: without it the same attempt would start
// over, which loses nothing, but at once instead of with backoff.
type lost struct {
	mu       sync.Mutex
	attempts map[string]int32 // by node UID
}

func (l *lost) add(uid string, attempt int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.attempts == nil {
		l.attempts = map[string]int32{}
	}
	l.attempts[uid] = attempt
}

func (l *lost) of(uid string) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts[uid]
}

// forget drops a hint that was used; attempt guards against dropping a newer one.
func (l *lost) forget(uid string, attempt int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if attempt != 0 && l.attempts[uid] == attempt {
		delete(l.attempts, uid)
	}
}

// inflight remembers the probe of each group that was created and is not in the cache yet, so that nodes which fail
// together share one.
type inflight struct {
	mu   sync.Mutex
	pods map[string]unseen // by group
}

type unseen struct {
	name string
	at   time.Time
}

func (i *inflight) take(group, pod string, now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.pods == nil {
		i.pods = map[string]unseen{}
	}
	if u, ok := i.pods[group]; ok && now.Sub(u.at) <= unseenFor {
		return false
	}
	i.pods[group] = unseen{name: pod, at: now}
	return true
}

// seen tells that the cache knows the pod now, or that it was not created.
func (i *inflight) seen(pod string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for group, u := range i.pods {
		if u.name == pod {
			delete(i.pods, group)
		}
	}
}
