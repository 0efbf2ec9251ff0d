package decide

// Wait is one thing that a node waits for before its first worker starts.
type Wait struct {
	// Kind is the prerequisite's key in the configuration: nodeReady, conditions, pods, csiNodes and so on.
	Kind string
	// Name says which prerequisite of that kind, as it is configured: the same for every node, so that it can be a
	// metric's label.
	Name string
	// Why says what is missing on this node, for a person.
	Why string
	// Remedy says what a person has to change, where time alone does not end the wait; empty elsewhere.
	Remedy string
}

// String is what the node waits for, and how that ends.
func (w Wait) String() string {
	if w.Remedy == "" {
		return w.Why
	}
	return w.Why + ": " + w.Remedy
}

// stuckEvent is the event of a node that waits for what does not come by itself; none where all may. There is one for all of them:
// what is repeated is known by one key for each node.
func stuckEvent(waits []Wait) []Event {
	var hopeless []Wait
	e := Event{Reason: EventStuck}
	for _, w := range waits {
		if w.Remedy != "" {
			hopeless = append(hopeless, w)
			e.Key += w.Kind + " " + w.Name + "\n"
		}
	}
	if len(hopeless) == 0 {
		return nil
	}
	e.Message = waitsFor(hopeless)
	return []Event{e}
}
