package integration

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// A leader that was stopped (SIGSTOP, a paused machine) goes on beside its successor: it must do nothing.
func TestRaceStoppedLeaderDoesNothingWhenItWakes(t *testing.T) {
	s := begin(t, execCheck("sleep", "1"))
	old := s.controller()
	s.becomes(s.node("first").Name, "verified by the first leader", isVerified)
	s.controller()
	old.Signal(syscall.SIGSTOP)
	var names []string
	for i := range 5 {
		names = append(names, s.node(fmt.Sprint(i)).Name)
	}
	s.becomes(names[0], "verified by the successor", isVerified)
	// The old one goes on with a queue full of nodes of which it has seen nothing.
	for i := range 10 {
		names = append(names, s.node(fmt.Sprint(100+i)).Name)
	}
	old.Signal(syscall.SIGCONT)
	select {
	case <-old.Done():
	case <-time.After(patience):
		t.Error("a leader that lost its lease goes on")
	}
	for _, name := range names {
		if f := s.becomes(name, "verified", isVerified); f.Record.Sequence != 1 || s.created.of(name) != 1 {
			t.Errorf("%s: %d workers, %+v", name, s.created.of(name), f.Record)
		}
	}
}
