package marks

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RecordCache are records that were read, for one who reads those of all nodes again and again, where few have changed: to read one takes longer
// than all else of Observe.
type RecordCache map[types.UID]cachedRecord

// cachedRecord is a record, and the annotation that it was read from.
type cachedRecord struct {
	raw    string
	record *Record
}

// Observe is the function of that name, by way of the record that was read before, if the annotation still says the same. What it used it
// adds to next. The Record must not be modified.
func (r RecordCache) Observe(n *corev1.Node, v Vocabulary, next RecordCache) Facts {
	raw := n.Annotations[AnnotationRecord]
	if k, ok := r[n.UID]; ok && k.raw == raw {
		next[n.UID] = cachedRecord{raw, k.record} // not k: its string would keep an older version of the node in memory
		f := observe(n, v)
		f.Record = *k.record
		return f
	}
	f := Observe(n, v)
	if f.HasRecord && f.RecordProblem == "" {
		record := f.Record
		next[n.UID] = cachedRecord{raw, &record}
	}
	return f
}
