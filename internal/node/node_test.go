package node

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

var (
	gating = []config.Taint{{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}, {Key: "gpu/unverified", Effect: corev1.TaintEffectNoExecute}}
	label  = config.Label{Key: "node-ready/verified", Value: "true"}
)

func taint(key string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Effect: effect}
}

func TestTaints(t *testing.T) {
	foreign := []corev1.Taint{taint("node.kubernetes.io/not-ready", corev1.TaintEffectNoSchedule), taint("node-ready/unverified", corev1.TaintEffectNoExecute), taint("x", corev1.TaintEffectNoSchedule)}
	have := append([]corev1.Taint{{Key: "node-ready/unverified", Value: "another", Effect: corev1.TaintEffectNoSchedule}}, foreign...)

	kept := WithoutTaints(have, gating)
	if len(kept) != len(foreign) {
		t.Errorf("kept %v, want the foreign ones, one of them with our key and another effect", kept)
	}
	all := WithTaints(kept, gating)
	if len(all) != len(foreign)+2 || len(WithTaints(all, gating)) != len(all) {
		t.Errorf("added %v", all)
	}
	if got := WithTaints(have, gating); got[0].Value != "another" || len(got) != len(have)+1 {
		t.Errorf("a taint that is there with another value was touched: %v", got)
	}
}

func TestObserve(t *testing.T) {
	record := Record{NodeUID: "u1", BootID: "b1", Sequence: 3, LastOutcome: OutcomePassed}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u1", Labels: map[string]string{label.Key: "true", LabelControlPlane: "", LabelKarpenterNodePool: "pool", LabelKarpenterRegistered: "true"},
			Annotations: map[string]string{AnnotationRecord: record.Encode(), AnnotationSkip: "true", AnnotationCAPISkipRemediation: ""}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint("gpu/unverified", corev1.TaintEffectNoExecute)}},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "b2"}, Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}, {Type: ConditionType, Status: corev1.ConditionTrue}}},
	}
	f, err := Observe(n, gating, label)
	if err != nil {
		t.Fatal(err)
	}
	if !f.Gated || !f.Labelled || !f.Skip || !f.DoNotDelete || !f.ControlPlane || !f.Managed || !f.Registered || f.Pool != "pool" || f.Ready || !f.Lost ||
		f.BootID != "b2" || f.Record.Sequence != 3 || f.Condition == nil {
		t.Errorf("%+v", f)
	}
	n.Labels[label.Key] = "false"
	n.Labels[LabelKarpenterNodePool] = ""
	delete(n.Labels, LabelKarpenterNodePool)
	n.OwnerReferences = []metav1.OwnerReference{{Kind: KindNodeClaim}}
	n.UID = "u2"
	f, err = Observe(n, gating, label)
	if err != nil || f.Labelled || !f.Managed || f.Record != (Record{}) || !f.HasRecord {
		t.Errorf("a label of another value, an owner, another node's record: %+v %v", f, err)
	}
}

func TestUnreadableRecordsCountAsNone(t *testing.T) {
	for _, raw := range []string{"", "{", "[]", `{"sequence":-1}`, `{"sequence":"x"}`, strings.Repeat("[", 100000)} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "u1", Annotations: map[string]string{AnnotationRecord: raw}}}
		f, err := Observe(n, gating, label)
		if err == nil || f.Record != (Record{}) || !f.HasRecord {
			t.Errorf("%.20q: %+v, %v", raw, f.Record, err)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(Record{NodeUID: "u1", Sequence: 1, LastTime: &metav1.Time{Time: time.Unix(0, 0)}}.Encode())
	f.Fuzz(func(t *testing.T, raw string) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "u1", Annotations: map[string]string{AnnotationRecord: raw}}}
		facts, err := Observe(n, gating, label)
		if err != nil && facts.Record != (Record{}) {
			t.Errorf("%q: half a record", raw)
		}
	})
}

func TestPatch(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{
		taint("node-ready/unverified", corev1.TaintEffectNoSchedule), taint("x", corev1.TaintEffectNoSchedule)}}}
	for name, tc := range map[string]struct {
		change Change
		want   string
	}{
		"keep": {Change{}, `{"metadata":{"annotations":"*","resourceVersion":"7"}}`},
		"open": {Change{Gate: GateOpen, Label: ptr.To(true)}, `{"metadata":{"annotations":"*","labels":{"node-ready/verified":"true"},"resourceVersion":"7"},"spec":{"taints":[{"effect":"NoSchedule","key":"x"}]}}`},
		"close": {Change{Gate: GateClose, Label: ptr.To(false)},
			`{"metadata":{"annotations":"*","labels":{"node-ready/verified":null},"resourceVersion":"7"},"spec":{"taints":[{"effect":"NoSchedule","key":"node-ready/unverified"},{"effect":"NoSchedule","key":"x"},{"effect":"NoExecute","key":"gpu/unverified"}]}}`},
	} {
		var got map[string]any
		if err := json.Unmarshal(tc.change.Patch(n, gating, label), &got); err != nil {
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

func TestConditionTransitionTime(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := Condition{Status: corev1.ConditionFalse, Reason: ReasonChecksFailed, Message: "m", Since: at}
	have := &corev1.NodeCondition{Status: corev1.ConditionFalse, Reason: ReasonChecksFailed, Message: "other", LastTransitionTime: metav1.NewTime(at.Add(-time.Hour))}
	if c.Same(have) {
		t.Error("another message is not the same")
	}
	if p := string(c.Patch(have)); !strings.Contains(p, `"lastTransitionTime":"2026-03-01T11:00:00Z"`) {
		t.Errorf("the status did not change, its transition time did: %s", p)
	}
	have.Status = corev1.ConditionTrue
	if p := string(c.Patch(have)); !strings.Contains(p, `"lastTransitionTime":"2026-03-01T12:00:00Z"`) {
		t.Errorf("%s", p)
	}
}

func TestTruncate(t *testing.T) {
	s := Truncate(strings.Repeat("é", 1000))
	if len(s) > 512 || !utf8.ValidString(s) || !strings.HasSuffix(s, "…") || Truncate("short") != "short" {
		t.Errorf("%d bytes, valid %v", len(s), utf8.ValidString(s))
	}
}
