package marks

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWriter(t *testing.T) {
	entry := func(manager, fields string, at int64, change ...func(*metav1.ManagedFieldsEntry)) metav1.ManagedFieldsEntry {
		e := metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)}
		if at > 0 {
			e.Time = &metav1.Time{Time: time.Unix(at, 0)}
		}
		for _, f := range change {
			f(&e)
		}
		return e
	}
	status := func(e *metav1.ManagedFieldsEntry) { e.Subresource = "status" }
	const taints, spec = `{"f:spec":{"f:taints":{}}}`, `{"f:spec":{"f:podCIDR":{}},"f:metadata":{"f:taints":{}}}`
	for name, tc := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    string
	}{
		"none":                {},
		"the one that has it": {[]metav1.ManagedFieldsEntry{entry("kubelet", spec, 9), entry("group", taints, 1), entry("other", `{}`, 9)}, "group"},
		"the last of two":     {[]metav1.ManagedFieldsEntry{entry("a", taints, 1), entry("b", taints, 3), entry("c", taints, 2)}, "b"},
		"without a time":      {[]metav1.ManagedFieldsEntry{entry("a", taints, 0)}, "a"},
		"of the status":       {[]metav1.ManagedFieldsEntry{entry("a", taints, 1, status)}, ""},
		"no fields":           {[]metav1.ManagedFieldsEntry{{Manager: "a"}, entry("b", `not JSON`, 1), entry("c", `{"f:spec":7}`, 1), entry("d", ``, 1)}, ""},
	} {
		if got := Writer(tc.entries, "spec", "taints"); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if got := Writer([]metav1.ManagedFieldsEntry{entry("git", `{"f:metadata":{"f:labels":{".":{},"f:node-ready/verified":{}}}}`, 1)}, "metadata", "labels", "node-ready/verified"); got != "git" {
		t.Errorf("a label's writer is %q", got)
	}
}
