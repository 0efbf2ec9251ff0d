package marks

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestRecordsAreReadOnce, and again once the annotation or the node is another one.
func TestRecordsAreReadOnce(t *testing.T) {
	with := func(uid types.UID, raw string) *corev1.Node {
		n := node()
		n.UID = uid
		if raw != "" {
			n.Annotations[AnnotationRecord] = raw
		}
		return n
	}
	raw := Record{NodeUID: "u1", Sequence: 1}.Encode()
	read := RecordCache{"u1": {raw: raw, record: &Record{NodeUID: "u1", Sequence: 7}}} // which is not what the annotation says
	for name, test := range map[string]struct {
		n    *corev1.Node
		want int32
		kept int
	}{
		"the same":                   {with("u1", raw), 7, 1},
		"another record":             {with("u1", Record{NodeUID: "u1", Sequence: 2}.Encode()), 2, 1},
		"none any more":              {with("u1", ""), 0, 0},
		"one that cannot be read":    {with("u1", "{"), 0, 0},
		"another node's":             {with("u2", raw), 0, 1},
		"a record of another node's": {with("u2", Record{NodeUID: "u2", Sequence: 3}.Encode()), 3, 1},
	} {
		next := RecordCache{}
		got, want := read.Observe(test.n, vocabulary, next), Observe(test.n, vocabulary)
		if got.Record.Sequence != test.want || len(next) != test.kept {
			t.Errorf("%s: sequence %d, and %d records kept, want %d and %d", name, got.Record.Sequence, len(next), test.want, test.kept)
		}
		if got.Record.Sequence = want.Record.Sequence; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		if again := next.Observe(test.n, vocabulary, RecordCache{}); again.Record.Sequence != test.want || again.RecordProblem != want.RecordProblem {
			t.Errorf("%s, for the second time: %+v", name, again)
		}
	}
}
