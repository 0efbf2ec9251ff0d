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
	// Objects are the missing objects, if Name stands for all of a kind.
	Objects []string
	// Message says what is missing on this node, for a person.
	Message string
	// Remedy says what a person has to change, if the prerequisite cannot be met without that.
	Remedy string
	// Until is when the prerequisite is to be evaluated again, even if nothing changes; zero for never.
	Until time.Time
	// Hint is the remedy if it stays unmet for longer than hintAfter.
	Hint string
}

// hintAfter is how long a node waits before a hint becomes a remedy.
const hintAfter = time.Minute

// withHints turns hints into remedies once the node has been waiting for hintAfter. left is the time until then. It is
// 0 if the time has passed or there is no hint.
func withHints(unmet []Unmet, since, now time.Time) (_ []Unmet, left time.Duration) {
	hinted := func(u Unmet) bool { return u.Hint != "" && u.Remedy == "" }
	if since.IsZero() || !slices.ContainsFunc(unmet, hinted) {
		return unmet, 0
	}
	if left = since.Add(hintAfter).Sub(now); left > 0 {
		return unmet, left
	}
	unmet = slices.Clone(unmet)
	for i := range unmet {
		if hinted(unmet[i]) {
			unmet[i].Remedy = unmet[i].Hint
		}
	}
	return unmet, 0
}

// Kinds of an Unmet that is not a prerequisite.
const (
	UnmetSlot           = "slot"
	UnmetRegistration   = "registration"
	UnmetInitialization = "initialization"
)

// WaitingLabels are the labels of the metric that counts waiting nodes.
type WaitingLabels struct {
	// For is a prerequisite's kind and name (or that of the missing object), slot, registration or initialization.
	For string
	// Pool is empty for nodes of no NodePool.
	Pool string
}

// WaitingLabels lists what the node waits for.
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

// String is the message, with the remedy if there is one.
func (u Unmet) String() string {
	if u.Remedy == "" {
		return u.Message
	}
	return u.Message + ": " + u.Remedy
}

// minimumHold is the unmet prerequisite of a gated node until nodeManagement.minimumHoldSeconds is over. left is the
// time until then, or 0 once it is over. The time counts from the node's creation, so that a new leader does not start
// it again.
func minimumHold(in Input, now time.Time) (u Unmet, left time.Duration) {
	seconds := in.Config.NodeManagement.MinimumHoldSeconds
	end := in.Node.Created.Add(time.Duration(seconds) * time.Second)
	if left = end.Sub(now); !in.Node.Gated || seconds <= 0 || left <= 0 {
		return Unmet{}, 0
	}
	until := end.UTC().Format(time.RFC3339)
	return Unmet{Kind: "minimumHoldSeconds", Name: fmt.Sprint(seconds),
		Message: fmt.Sprintf("the end of nodeManagement.minimumHoldSeconds (%d) at %s", seconds, until)}, left
}

// prerequisiteStuckEvents returns one event for all prerequisites that need a person, or none if there is no such
// prerequisite.
func prerequisiteStuckEvents(unmet []Unmet) []Event {
	var stuck []Unmet
	e := Event{Reason: EventPrerequisiteStuck}
	for _, u := range unmet {
		if u.Remedy != "" {
			stuck = append(stuck, u)
			e.Key += u.Kind + " " + u.Name + "\n"
		}
	}
	if len(stuck) == 0 {
		return nil
	}
	e.Message = unmetMessage(stuck)
	return []Event{e}
}
