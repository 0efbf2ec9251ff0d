package controller

import (
	"testing"
	"time"
)

func TestSlots(t *testing.T) {
	now := time.Unix(0, 0)
	alive := 0
	s := slots{limit: 2}
	take := func(pod, node string) bool { return s.take(pod, node, func() int { return alive }, now) }
	if !take("p1", "n1") || !take("p2", "n2") || take("p3", "n3") {
		t.Fatal("two of three pods that the cache does not know yet have a place")
	}
	if !take("p1", "n1") {
		t.Error("the same pod needs a second place")
	}
	s.seen("p1")
	alive = 1
	if take("p3", "n3") || take("p4", "n4") {
		t.Error("a pod lost its place as it came into the cache")
	}
	alive = 0
	if got := s.next(); len(got) != 1 || got[0] != "n3" {
		t.Errorf("the next node is %v, want the first that waited, once", got)
	}
	if !take("p3", "n3") {
		t.Error("no place after a pod ended")
	}
	s.forget("n4")
	if got := s.next(); got != nil {
		t.Errorf("a node that is gone is woken: %v", got)
	}
	now = now.Add(unseenFor + time.Second)
	if !take("p5", "n5") {
		t.Error("a pod that never reached the cache keeps its place for ever")
	}
}

func TestOneProbeForAGroup(t *testing.T) {
	now := time.Unix(0, 0)
	i := inflight{}
	if !i.take("g", "p1", now) || i.take("g", "p2", now) || !i.take("other", "p3", now) {
		t.Fatal("one probe for each group")
	}
	i.seen("p1")
	if !i.take("g", "p4", now) {
		t.Error("none after the first is in the cache")
	}
	if !i.take("g", "p5", now.Add(unseenFor+time.Second)) {
		t.Error("a probe that never reached the cache is waited for for ever")
	}
}
