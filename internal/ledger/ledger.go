// Package ledger is the form of the ledger of remediations: what the controller writes into its ConfigMap, and kubectl
// node-ready reads.
package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Name is the ConfigMap, in the controller's namespace.
const Name = "kube-node-ready-remediations"

// Keys of its data. If one is missing, the ledger was just created or emptied, and earlier actions are unknown.
const (
	KeyDeletions = "deletions.json"
	// KeySince holds when the ledger was begun, as RFC 3339.
	KeySince = "since"
)

// AnnotationPaused on the ConfigMap stops remediation: its value says why, or just true. Empty and NotPaused are none.
const AnnotationPaused = "node-ready/paused"

// NotPaused is a value of AnnotationPaused that does not stop remediation.
const NotPaused = "false"

// History is how many actions are kept, with their reasons, beyond the time that the limits look back.
const History = 200

const (
	// The API server refuses objects over 1 MiB or so. Names are of no fixed length, hence the second bound.
	maxEntries = 5000
	maxBytes   = 768 << 10
	// maxField is the longest name in Kubernetes, the type of a condition: a prefix, a slash and a name.
	maxField = 253 + 1 + 63
	// clockSlack is how far ahead the clock of the one who made an entry may be before the entry is corrected.
	clockSlack = time.Minute
)

// ErrUnreadable says that the ledger exists and cannot be parsed. A retry does not help.
var ErrUnreadable = errors.New("cannot parse the ledger of remediations")

// Entry is one action on a node: a deletion, or a condition that asks a repairer to act. It is written before the
// action is carried out.
type Entry struct {
	Time metav1.Time `json:"time"`
	Node string      `json:"node"`
	UID  string      `json:"nodeUID"`
	Pool string      `json:"pool,omitempty"`
	Zone string      `json:"zone,omitempty"`
	// Kind is what was deleted, or marks.KindCondition.
	Kind string `json:"kind"`
	// Set is when the condition was last set, if that was again after Time; else nil. No limit counts it.
	Set *metav1.Time `json:"set,omitempty"`
	// Name is that of the object of Kind, or the type of the condition.
	Name string `json:"name,omitempty"`
	// Reason is what led to it. Only the last History entries have one.
	Reason string `json:"reason,omitempty"`
}

// Contents are what the ConfigMap holds.
type Contents struct {
	// Version is its resourceVersion; empty if it does not exist.
	Version string
	// CompleteSince is since when Entries holds every action; zero if unknown.
	CompleteSince time.Time
	// Paused is why remediation is paused; empty if it is not.
	Paused  string
	Entries []Entry
}

// Parse reads the ConfigMap; nil means that it does not exist. One invalid entry makes the whole ledger unreadable,
// because no limit would count a dropped entry.
func Parse(cm *corev1.ConfigMap) (Contents, error) {
	if cm == nil {
		return Contents{}, nil
	}
	c := Contents{Version: cm.ResourceVersion, Paused: cm.Annotations[AnnotationPaused]}
	if c.Paused == NotPaused {
		c.Paused = ""
	}
	unreadable := fmt.Errorf("%w: to start a new ledger, remove key %s of ConfigMap %s/%s",
		ErrUnreadable, KeyDeletions, cm.Namespace, cm.Name)
	if _, binary := cm.BinaryData[KeyDeletions]; binary {
		return c, unreadable
	}
	raw := cm.Data[KeyDeletions]
	if raw == "" {
		return c, nil
	}
	if err := json.Unmarshal([]byte(raw), &c.Entries); err != nil || c.Entries == nil { // nil: null
		return c, unreadable
	}
	for _, e := range c.Entries {
		if !e.valid() {
			return c, unreadable
		}
	}
	if begun, err := time.Parse(time.RFC3339, cm.Data[KeySince]); err == nil {
		c.CompleteSince = begun
	}
	return c, nil
}

func (e Entry) valid() bool {
	return !e.Time.IsZero() && e.UID != "" &&
		max(len(e.Node), len(e.UID), len(e.Pool), len(e.Zone), len(e.Kind), len(e.Name)) <= maxField
}

// Repeats reports whether the entry is about the same action as an earlier one: an action on the same node since its
// last pass. An action that is tried again, because the controller was stopped or a write was refused, counts once.
func (e Entry) Repeats(earlier Entry, passed time.Time) bool {
	return e.UID == earlier.UID && e.Kind == earlier.Kind && earlier.Time.After(passed)
}

// LastSet is when the condition was last set: its lastTransitionTime.
func (e Entry) LastSet() metav1.Time {
	if e.Set != nil {
		return *e.Set
	}
	return e.Time
}

// Validate returns an error unless the entry may be written.
func (e Entry) Validate() error {
	if !e.valid() || e.Node == "" || e.Kind == "" {
		return errors.New(
			"add an action to the ledger: its time, node, UID or kind is missing or too long")
	}
	return nil
}

// Prune drops entries older than keep, except the last History ones, and sorts the rest, the newest last. A time in the
// future, from a fast clock, becomes now, so that it is neither missed nor counted for too long.
func (c Contents) Prune(now time.Time, keep time.Duration) Contents {
	kept := []Entry{} // never null in JSON
	for _, e := range c.Entries {
		if e.Time.After(now) {
			e.Time = metav1.NewTime(now)
		}
		if e.Set != nil && (e.Set.After(now) || !e.Set.After(e.Time.Time)) {
			e.Set = nil
		}
		kept = append(kept, e)
	}
	slices.SortStableFunc(kept, func(a, b Entry) int { return a.Time.Compare(b.Time.Time) })
	history := max(0, len(kept)-History)
	for i := range history {
		kept[i].Reason = "" // there may be thousands
	}
	c.Entries = append(NewerThan(kept[:history], now, keep), kept[history:]...)
	if c.CompleteSince.After(now) {
		c.CompleteSince = now
	}
	return c
}

// NewerThan returns the entries that are younger than age.
func NewerThan(entries []Entry, now time.Time, age time.Duration) []Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool { return now.Sub(e.Time.Time) >= age })
}

// HasFutureTimes reports whether a time is in the future by more than clockSlack.
func (c Contents) HasFutureTimes(now time.Time) bool {
	return c.CompleteSince.Sub(now) > clockSlack ||
		slices.ContainsFunc(c.Entries, func(e Entry) bool { return e.Time.Sub(now) > clockSlack })
}

// Write puts the contents into the ConfigMap: as many of the entries as it should hold, the newest, which come last.
func (c Contents) Write(cm *corev1.ConfigMap) error {
	entries := c.Entries[max(0, len(c.Entries)-maxEntries):]
	for {
		raw, err := json.Marshal(entries)
		if err != nil {
			return fmt.Errorf("encode the ledger of remediations: %w", err)
		}
		if len(raw) > maxBytes {
			entries = entries[len(entries)/10+1:]
			continue
		}
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		cm.Data[KeyDeletions], cm.Data[KeySince] = string(raw), c.CompleteSince.UTC().Format(time.RFC3339)
		return nil
	}
}
