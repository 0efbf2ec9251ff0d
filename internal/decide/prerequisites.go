package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Unmet is one thing that a node waits for before its first worker starts.
type Unmet struct {
	// Kind is the prerequisite's key in the configuration: nodeReady, conditions, pods, csiNodes and so on.
	Kind string
	// Name says which prerequisite of that kind, as it is configured: the same for every node, so that it can be a
	// metric's label.
	Name string
	// Objects are the objects that are missing where Name stands for all of a kind; empty elsewhere.
	Objects []string
	// Message says what is missing on this node, for a person.
	Message string
	// Remedy says what a person has to change, where time alone does not end the wait; empty elsewhere.
	Remedy string
}

// Kinds of a Wait that is for no prerequisite.
const (
	UnmetSlot         = "slot"
	UnmetRegistration = "registration"
)

// WaitingLabels is what nodes of a NodePool wait for, as metrics name it.
type WaitingLabels struct {
	// For is a prerequisite's kind and name, or that of the object that is missing; slot or registration.
	For string
	// Pool is empty for nodes of no NodePool.
	Pool string
}

// WaitingLabels is what the node waits for.
func (p Plan) WaitingLabels(in Input) []WaitingLabels {
	var all []WaitingLabels
	for _, w := range p.Unmet {
		names := w.Objects
		if len(names) == 0 {
			names = []string{w.Name}
		}
		for _, name := range names {
			of := WaitingLabels{For: strings.TrimSpace(w.Kind + " " + name), Pool: in.Node.Owner.Pool}
			if !slices.Contains(all, of) {
				all = append(all, of)
			}
		}
	}
	return all
}

// String is what the node waits for, and how that ends.
func (w Unmet) String() string {
	if w.Remedy == "" {
		return w.Message
	}
	return w.Message + ": " + w.Remedy
}

// minimumHold is the wait of a gated node for nodeManagement.minimumHoldSeconds, and how long that still is; 0 once it is over. It counts
// from the node's creation, which the API server wrote and every leader reads, so that a restart does not begin it anew.
func minimumHold(in Input, now time.Time) (w Unmet, left time.Duration) {
	seconds := in.Config.NodeManagement.MinimumHoldSeconds
	end := in.Node.Created.Add(time.Duration(seconds) * time.Second)
	if left = end.Sub(now); !in.Node.Gated || seconds <= 0 || left <= 0 {
		return Unmet{}, 0
	}
	return Unmet{Kind: "minimumHoldSeconds", Name: fmt.Sprint(seconds),
		Message: fmt.Sprintf("nodeManagement.minimumHoldSeconds (%d) to be over at %s", seconds, end.UTC().Format(time.RFC3339))}, left
}

// prerequisiteStuckEvents is the event of a node that waits for what does not come by itself; none where all may. There is one for all of them:
// what is repeated is known by one key for each node.
func prerequisiteStuckEvents(waits []Unmet) []Event {
	var hopeless []Unmet
	e := Event{Reason: EventPrerequisiteStuck}
	for _, w := range waits {
		if w.Remedy != "" {
			hopeless = append(hopeless, w)
			e.Key += w.Kind + " " + w.Name + "\n"
		}
	}
	if len(hopeless) == 0 {
		return nil
	}
	e.Message = unmetMessage(hopeless)
	return []Event{e}
}
