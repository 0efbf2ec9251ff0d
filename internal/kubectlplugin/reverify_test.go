package kubectlplugin

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// TestReverify applies the patch and asks the controller's rules: they must start the next attempt at once, and remember
// what the record said about earlier ones.
func TestReverify(t *testing.T) {
	once := exhausted()
	once.VerifiedTime, once.Deletion = after(-time.Hour), &marks.Deletion{Kind: "Node", Name: "n", UID: "uid", Time: now}
	cleared := exhausted()
	cleared.Cleared, cleared.Request = []marks.Suspicion{{Type: "A", Time: now}}, "old"
	for _, test := range []struct {
		name    string
		node    *corev1.Node
		attempt int32
	}{
		{"verified", makeNode(labelled, having(passed)), 4},
		{"verified, record lost", makeNode(labelled), 1},
		{"exhausted", makeNode(gated, having(exhausted())), 6},
		{"once verified, exhausted", makeNode(gated, having(once)), 6},
		{"between attempts", makeNode(gated, having(failed)), 3},
		{"with a condition, cleared before", makeNode(gated, having(cleared), asked("node-ready/RemediationRequired"), annotated(marks.AnnotationVerifyRequested, "old")), 6},
		{"passes taken back", makeNode(gated, labelled, takenBack("git", time.Minute, time.Minute, time.Minute)), 4},
		{"never managed", makeNode(), 1},
		{"record of another node of this name", makeNode(gated, annotated(marks.AnnotationRecord, `{"nodeUID":"other","sequence":9}`)), 1},
		{"record unreadable", makeNode(gated, annotated(marks.AnnotationRecord, "{")), 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := configuration(t, asking)
			before := observe(cfg, test.node, nil)
			patch, message, err := before.reverify(now)
			if err != nil || patch == nil || !strings.HasPrefix(message, "attempt ") {
				t.Fatalf("patch %s, message %q, error %v", patch, message, err)
			}
			var guard struct {
				Metadata struct{ UID, ResourceVersion string }
			}
			if err := json.Unmarshal(patch, &guard); err != nil || guard.Metadata.ResourceVersion != "7" || guard.Metadata.UID != "uid" {
				t.Errorf("the patch is not guarded by UID and resourceVersion: %s", patch)
			}
			in, was := observe(cfg, apply(t, test.node, patch), nil).in, before.in.Node
			room := true
			plan := decide.Next(in, decide.Evidence{Fresh: true, Unmet: &[]decide.Unmet{}, Slot: &room}, now)
			if plan.Step != decide.StepStart || plan.Number != test.attempt {
				t.Errorf("the controller's step is %q, attempt %d; want start, attempt %d", plan.Step, plan.Number, test.attempt)
			}
			if in.Node.Gated != was.Gated || in.Node.Labelled {
				t.Errorf("gated %v, labelled %v", in.Node.Gated, in.Node.Labelled)
			}
			if decide.Adoptable(before.in) { // the controller has not yet written that it counts as verified
				was.Record = decide.Adopt(before.in, now).Record
			}
			r := marks.Record{NodeUID: "uid", BootID: was.Record.BootID, Sequence: test.attempt - 1,
				VerifiedTime: was.Record.VerifiedTime, Cleared: was.Record.Cleared, Request: was.Record.Request}
			if in.Node.Record.Encode() != r.Encode() || was.Labelled && !in.Node.Record.MayHaveVerified() {
				t.Errorf("record %s, want %s", in.Node.Record.Encode(), r.Encode())
			}
		})
	}
}

// With --wait a verified node keeps its label and record, any other starts afresh, and the controller writes the request
// down.
func TestReverifyByRequest(t *testing.T) {
	for _, test := range []struct {
		name   string
		node   *corev1.Node
		pods   []corev1.Pod
		afresh bool
	}{
		{"verified", makeNode(labelled, having(passed)), nil, false},
		{"verified, record lost", makeNode(labelled), nil, false},
		{"exhausted", makeNode(gated, having(exhausted())), nil, true},
		{"label removed", makeNode(having(passed)), nil, true},
		{"never managed", makeNode(), nil, true},
		{"an attempt under way", makeNode(gated, having(failed)), workers(t, 3), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := configuration(t, "")
			before := observe(cfg, test.node, test.pods)
			patch, err := before.requestReverify("id", now)
			if err != nil {
				t.Fatal(err)
			}
			if guarded := strings.Contains(string(patch), `"resourceVersion":"7"`); guarded != test.afresh || !strings.Contains(string(patch), `"uid":"uid"`) {
				t.Errorf("guarded %v: %s", guarded, patch)
			}
			changed := apply(t, test.node, patch)
			in := observe(cfg, changed, test.pods).in
			if in.Node.Requested != "id" || in.Node.Labelled != before.in.Node.Labelled || in.Node.Gated != before.in.Node.Gated {
				t.Errorf("request %q, labelled %v, gated %v", in.Node.Requested, in.Node.Labelled, in.Node.Gated)
			}
			if afresh := changed.Annotations[marks.AnnotationRecord] != test.node.Annotations[marks.AnnotationRecord]; afresh != test.afresh {
				t.Errorf("starts afresh %v, want %v", afresh, test.afresh)
			}
			if test.pods != nil {
				return // the request is written down once the attempt has ended
			}
			if decide.Adoptable(in) { // the controller does that first
				in.Node.Record = decide.Adopt(in, now).Record
			}
			plan := decide.Next(in, decide.Evidence{Fresh: true, Unmet: &[]decide.Unmet{}}, now)
			if s := plan.Change.Record.Suspicion; plan.Step != decide.StepRecord || s == nil || s.Request != "id" {
				t.Errorf("the controller's step is %q, suspicion %+v", plan.Step, s)
			}
		})
	}
	if _, err := observe(configuration(t, ""), makeNode(annotated(marks.AnnotationSkip, "true")), nil).requestReverify("id", now); err == nil {
		t.Error("a request on a node that is skipped is not refused")
	}
}

func TestReverifyRefusals(t *testing.T) {
	for _, test := range []struct {
		name         string
		node         *corev1.Node
		pods         []corev1.Pod
		message, err string
	}{
		{"skipped", makeNode(gated, annotated(marks.AnnotationSkip, "true")), nil, "", "it is excluded from verification"},
		{"deleting", makeNode(gated, leaving), nil, "", "it is being deleted"},
		{"under way", makeNode(gated), workers(t, 1), "attempt 1 already runs", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			patch, message, err := observe(configuration(t, ""), test.node, test.pods).reverify(now)
			if patch != nil || message != test.message {
				t.Errorf("patch %s, message %q", patch, message)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
}

// apply is a merge patch as the API server would apply it to these fields.
func apply(t *testing.T, n *corev1.Node, patch []byte) *corev1.Node {
	t.Helper()
	original, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch, corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	var after corev1.Node
	if err := json.Unmarshal(merged, &after); err != nil {
		t.Fatal(err)
	}
	return &after
}
