package marks

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func TestConditionTransitionTime(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := Condition{Status: corev1.ConditionFalse, Reason: ReasonChecksFailed, Message: "m", Since: at}
	have := &corev1.NodeCondition{Status: corev1.ConditionFalse, Reason: ReasonChecksFailed, Message: "other", LastTransitionTime: metav1.NewTime(at.Add(-time.Hour))}
	if c.Same(have) {
		t.Error("another message is not the same")
	}
	if p := string(c.Patch("u1", have)); !strings.Contains(p, `"lastTransitionTime":"2026-03-01T11:00:00Z"`) {
		t.Errorf("the status did not change, its transition time did: %s", p)
	}
	have.Status = corev1.ConditionTrue
	if p := string(c.Patch("u1", have)); !strings.Contains(p, `"lastTransitionTime":"2026-03-01T12:00:00Z"`) {
		t.Errorf("%s", p)
	}
	if c.Same(nil) || !c.Same(&corev1.NodeCondition{Status: c.Status, Reason: c.Reason, Message: c.Message}) {
		t.Error("what is there is not recognised")
	}
}

// conditionsAfter are a node's conditions after a patch, as the API server applies it.
func conditionsAfter(t *testing.T, patch []byte) map[corev1.NodeConditionType]corev1.NodeCondition {
	t.Helper()
	n := node()
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: ConditionType, Status: corev1.ConditionUnknown, Reason: ReasonVerifying}}
	before, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	after := &corev1.Node{}
	if err := json.Unmarshal(merged, after); err != nil {
		t.Fatal(err)
	}
	all := map[corev1.NodeConditionType]corev1.NodeCondition{}
	for _, c := range after.Status.Conditions {
		all[c.Type] = c
	}
	return all
}

// A node that was re-created under its name does not get its predecessor's condition. Nor does it lose its own because
// of it.
func TestAConditionIsPatchedOnTheNodeOfTheUIDAlone(t *testing.T) {
	set := Condition{Status: corev1.ConditionTrue, Reason: ReasonChecksPassed, Message: "m", Since: time.Unix(1, 0)}.Patch("u1", nil)
	for _, patch := range [][]byte{set, RemoveCondition("u1")} {
		if !strings.Contains(string(patch), `"uid":"u1"`) {
			t.Errorf("%s", patch)
		}
	}
	after := conditionsAfter(t, set)
	if c := after[ConditionType]; len(after) != 2 || c.Status != corev1.ConditionTrue || c.Reason != ReasonChecksPassed || after[corev1.NodeReady].Status != corev1.ConditionTrue {
		t.Errorf("set: %+v", after)
	}
	after = conditionsAfter(t, RemoveCondition("u1"))
	if _, ours := after[ConditionType]; ours || len(after) != 1 {
		t.Errorf("removed: %+v", after)
	}
}

// Another program may set or remove a condition of the type at any time, so ours are patched on the node as it was read.
func TestConditionsAreWrittenOnTheNodeAsItWasRead(t *testing.T) {
	n := node()
	n.UID, n.ResourceVersion = "u1", "7"
	for name, patch := range map[string][]byte{
		"set":     SetCondition(n, corev1.NodeCondition{Type: "a/B", Status: corev1.ConditionTrue}),
		"removed": RemoveConditions(n, []corev1.NodeConditionType{"a/B"}),
	} {
		if !strings.Contains(string(patch), `"metadata":{"resourceVersion":"7","uid":"u1"}`) {
			t.Errorf("%s: %s", name, patch)
		}
	}
}
