package marks

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TakenBack are passes that another writer took back: a gating taint returned, or the verified label went.
type TakenBack struct {
	// Passes are when those passes were recorded (Record.VerifiedTime), the oldest first, at most MaxTakenBack.
	Passes []time.Time `json:"passes"`
	// By is the field manager that took the last one back. It is empty where the API server does not show it, and for the
	// first passes, for which nobody asked.
	By string `json:"by,omitempty"`
}

// MaxTakenBack limits TakenBack.Passes. A wait that doubles with each of them goes from one second to ten minutes.
const MaxTakenBack = 16

// Last is the last pass that was taken back; zero for none.
func (t *TakenBack) Last() time.Time {
	if t == nil || len(t.Passes) == 0 {
		return time.Time{}
	}
	return t.Passes[len(t.Passes)-1]
}

// Writer is the field manager that last wrote the field at the path, in the entries of an object; empty where no entry
// has the field, as after its removal. Status and other subresources do not count.
func Writer(entries []metav1.ManagedFieldsEntry, path ...string) (manager string) {
	manager, _ = lastWrite(entries, path)
	return manager
}

// lastWrite is who last wrote the field at the path, and when. The time is that of the writer's last change of any
// field.
func lastWrite(entries []metav1.ManagedFieldsEntry, path []string) (manager string, last time.Time) {
	for _, e := range entries {
		if e.Subresource != "" || !owns(e.FieldsV1, path) {
			continue
		}
		at := time.Time{}
		if e.Time != nil {
			at = e.Time.Time
		}
		if manager == "" || at.After(last) {
			manager, last = e.Manager, at
		}
	}
	return manager, last
}

// owns reports whether the set of fields has the one at the path, as in {"f:spec":{"f:taints":{}}}.
func owns(set *metav1.FieldsV1, path []string) bool {
	if set == nil {
		return false
	}
	raw := json.RawMessage(set.GetRawBytes())
	for _, field := range path {
		fields := map[string]json.RawMessage{}
		if json.Unmarshal(raw, &fields) != nil {
			return false
		}
		if raw = fields["f:"+field]; raw == nil {
			return false
		}
	}
	return true
}
