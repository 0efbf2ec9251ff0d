package deletion

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

const (
	ledgerKey = "deletions.json"
	// The API server refuses objects over 1 MiB or so. Names are of no fixed length, hence the second bound.
	maxEntries = 5000
	maxBytes   = 768 << 10
	// maxField is the longest that a name in Kubernetes can be.
	maxField = 253
	// clockSlack is how far ahead the clock of the one who made an entry may be before the entry is corrected.
	clockSlack = time.Minute
)

// entry is one deletion as the ConfigMap holds it.
type entry struct {
	Time metav1.Time `json:"time"`
	Node string      `json:"node"`
	UID  string      `json:"nodeUID"`
	Pool string      `json:"pool,omitempty"`
	Zone string      `json:"zone,omitempty"`
	Kind string      `json:"kind"`
}

// parse reads the entries of a ConfigMap. What cannot be an entry of ours makes the whole unreadable: an entry that is
// dropped is a deletion that no limit counts.
func parse(cm *corev1.ConfigMap) ([]entry, error) {
	unreadable := fmt.Errorf("%w: remove key %s of ConfigMap %s/%s to start a new one", decide.ErrLedger, ledgerKey, cm.Namespace, cm.Name)
	if _, binary := cm.BinaryData[ledgerKey]; binary {
		return nil, unreadable
	}
	raw := cm.Data[ledgerKey]
	if raw == "" {
		return nil, nil
	}
	var entries []entry
	if err := json.Unmarshal([]byte(raw), &entries); err != nil || entries == nil { // nil: null
		return nil, unreadable
	}
	for _, e := range entries {
		if !e.plausible() {
			return nil, unreadable
		}
	}
	return entries, nil
}

func (e entry) plausible() bool {
	return !e.Time.IsZero() && e.UID != "" && max(len(e.Node), len(e.UID), len(e.Pool), len(e.Zone), len(e.Kind)) <= maxField
}

// settle returns the entries that still matter, the newest last. One from the future, made by a clock that ran fast,
// counts as made now: it must neither be missed nor outstay its time.
func settle(entries []entry, now time.Time, keep time.Duration) []entry {
	kept := []entry{} // never null in JSON
	for _, e := range entries {
		if e.Time.After(now) {
			e.Time = metav1.NewTime(now)
		}
		if now.Sub(e.Time.Time) < keep {
			kept = append(kept, e)
		}
	}
	slices.SortStableFunc(kept, func(a, b entry) int { return a.Time.Compare(b.Time.Time) })
	return kept
}

// ahead reports whether an entry is so far in the future that it would outstay its time by much.
func ahead(entries []entry, now time.Time) bool {
	return slices.ContainsFunc(entries, func(e entry) bool { return e.Time.Sub(now) > clockSlack })
}

// encode writes as many of the entries as the ConfigMap should hold, the newest, which come last.
func encode(entries []entry) (string, error) {
	entries = entries[max(0, len(entries)-maxEntries):]
	for {
		raw, err := json.Marshal(entries)
		if err != nil || len(raw) <= maxBytes {
			return string(raw), err
		}
		entries = entries[len(entries)/10+1:]
	}
}
