package marks

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
)

func TestPatch(t *testing.T) {
	ours, x := taint("node-ready/unverified", corev1.TaintEffectNoSchedule), taint("x", corev1.TaintEffectNoSchedule)
	for name, tc := range map[string]struct {
		change Change
		want   string
	}{
		"keep":                       {Change{}, `{"metadata":{"annotations":"*","resourceVersion":"7","uid":"u1"}}`},
		"keep, whatever would close": {Change{GateTaints: vocabulary.Gating}, `{"metadata":{"annotations":"*","resourceVersion":"7","uid":"u1"}}`},
		"open": {Change{Gate: GateOpen, Label: ptr.To(true), GateTaints: vocabulary.Gating},
			`{"metadata":{"annotations":"*","labels":{"node-ready/verified":"true"},"resourceVersion":"7","uid":"u1"},"spec":{"taints":[{"effect":"NoSchedule","key":"x"}]}}`},
		"close": {Change{Gate: GateClose, Label: ptr.To(false), GateTaints: vocabulary.Gating},
			`{"metadata":{"annotations":"*","labels":{"node-ready/verified":null},"resourceVersion":"7","uid":"u1"},"spec":{"taints":[{"effect":"NoSchedule","key":"node-ready/unverified"},{"effect":"NoSchedule","key":"x"},{"effect":"NoExecute","key":"gpu/unverified"}]}}`},
	} {
		var got map[string]any
		if err := json.Unmarshal(tc.change.Patch(node(ours, x), vocabulary), &got); err != nil {
			t.Fatal(err)
		}
		got["metadata"].(map[string]any)["annotations"] = "*"
		b, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if string(b) != tc.want {
			t.Errorf("%s: %s\nwant %s", name, b, tc.want)
		}
	}
}

// patched is the node after the change. A strategic merge patch merges the fields that it touches like a merge patch,
// for which apimachinery has no function.
func patched(t *testing.T, n *corev1.Node, c Change) *corev1.Node {
	t.Helper()
	before, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(before, c.Patch(n, vocabulary), corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	after := &corev1.Node{}
	if err := json.Unmarshal(merged, after); err != nil {
		t.Fatal(err)
	}
	return after
}

// A pass removes every gating taint, of any profile. Closing the gate puts back only the given ones.
func TestWhatAChangeLeavesOnTheNode(t *testing.T) {
	file, gpu := taint("node-ready/unverified", corev1.TaintEffectNoSchedule), taint("gpu/unverified", corev1.TaintEffectNoExecute)
	foreign := taint("node.kubernetes.io/not-ready", corev1.TaintEffectNoSchedule)
	profile := []Taint{{Key: gpu.Key, Effect: gpu.Effect}}
	for name, tc := range map[string]struct {
		have   []corev1.Taint
		change Change
		want   []corev1.Taint
	}{
		"open":                     {[]corev1.Taint{file, foreign, gpu}, Change{Gate: GateOpen}, []corev1.Taint{foreign}},
		"open, nothing else there": {[]corev1.Taint{gpu}, Change{Gate: GateOpen}, nil},
		"open, nothing there":      {nil, Change{Gate: GateOpen}, nil},
		"close":                    {[]corev1.Taint{foreign}, Change{Gate: GateClose, GateTaints: profile}, []corev1.Taint{foreign, gpu}},
		"close, closed by another": {[]corev1.Taint{file}, Change{Gate: GateClose, GateTaints: profile}, []corev1.Taint{file, gpu}},
		"close, closed already":    {[]corev1.Taint{gpu, foreign}, Change{Gate: GateClose, GateTaints: profile}, []corev1.Taint{gpu, foreign}},
		"keep":                     {[]corev1.Taint{file, foreign}, Change{GateTaints: profile}, []corev1.Taint{file, foreign}},
	} {
		n := node(tc.have...)
		n.Labels["a"], n.Annotations["b"] = "1", "2"
		after := patched(t, n, tc.change)
		if !slices.Equal(after.Spec.Taints, tc.want) {
			t.Errorf("%s: %v, want %v", name, after.Spec.Taints, tc.want)
		}
		if after.Labels["a"] != "1" || after.Annotations["b"] != "2" || after.Annotations[AnnotationRecord] == "" {
			t.Errorf("%s: others' marks: %v %v", name, after.Labels, after.Annotations)
		}
	}
	n := node()
	n.Labels["node-ready/verified"] = "true"
	if after := patched(t, n, Change{Label: ptr.To(false)}); len(after.Labels) != 0 {
		t.Errorf("the label is still there: %v", after.Labels)
	}
	if after := patched(t, n, Change{}); after.Labels["node-ready/verified"] != "true" {
		t.Errorf("the label is gone: %v", after.Labels)
	}
}

// Only the patch that releases a node writes the time of the release, and only if an annotation for it is configured.
func TestCompleted(t *testing.T) {
	at := time.Unix(1700000000, 999)
	passed := Change{Record: Record{VerifiedTime: &at}, Gate: GateOpen}
	annotated := vocabulary
	annotated.Completed = "startup.k8s.io/completedAt"
	for name, tc := range map[string]struct {
		change Change
		names  Vocabulary
		want   string
	}{
		"released":             {passed, annotated, "1700000000"},
		"not configured":       {passed, vocabulary, ""},
		"passed while open":    {Change{Record: passed.Record}, annotated, ""},
		"closed after a pass":  {Change{Record: passed.Record, Gate: GateClose}, annotated, ""},
		"only rules' taints":   {Change{KeepRecord: true}, annotated, ""},
		"past its deadline":    {Change{Record: Record{VerifiedTime: &at, Released: ptr.To(at.Add(time.Hour))}, Gate: GateOpen}, annotated, "1700003600"},
		"released from record": {Change{Record: Record{}, Gate: GateOpen}, annotated, ""},
	} {
		n := node()
		merged, err := strategicpatch.StrategicMergePatch([]byte(`{"metadata":{"name":"n"}}`), tc.change.Patch(n, tc.names), corev1.Node{})
		if err != nil {
			t.Fatal(err)
		}
		after := &corev1.Node{}
		if err := json.Unmarshal(merged, after); err != nil {
			t.Fatal(err)
		}
		if got := after.Annotations["startup.k8s.io/completedAt"]; got != tc.want || Observe(after, tc.names).Completed != (tc.want != "") {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// One patch carries the whole change, on condition that the node has not changed since the decision.
func TestAChangeIsOneGuardedPatch(t *testing.T) {
	c := Change{Record: Record{NodeUID: "u1", LastMessage: "a \"quoted\" <text>\u2028"}, Gate: GateOpen, Label: ptr.To(true)}
	patch := string(c.Patch(node(), vocabulary))
	for _, want := range []string{`"resourceVersion":"7"`, `"uid":"u1"`, `"taints":[]`, `"node-ready/verified":"true"`, AnnotationRecord} {
		if !strings.Contains(patch, want) {
			t.Errorf("%s lacks %s", patch, want)
		}
	}
	after := patched(t, node(), c)
	if f := Observe(after, vocabulary); f.Record.LastMessage != c.Record.LastMessage || !f.Labelled {
		t.Errorf("%+v", f)
	}
}
