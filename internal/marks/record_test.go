package marks

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
)

// read is the record of node u1 that an annotation holds.
func read(raw string) (Record, string) {
	n := node()
	n.CreationTimestamp, n.Annotations[AnnotationRecord] = created, raw
	return readRecord(n)
}

// created is when node u1 was.
var created = metav1.NewTime(time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC))

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	r := Record{NodeUID: "u1", BootID: "b1", Checks: "c1", Sequence: 3, Attempts: 2, Inconclusive: 1, Shared: 6, LastOutcome: attempt.Failed, LastCheck: "dns",
		LastReason: "Timeout", LastMessage: "no \"answer\" \u2026", LastTime: &at, DurationMs: 1500, NextAttemptTime: &at, VerifiedTime: &at,
		Probed: true, TakenBack: &TakenBack{Passes: []time.Time{at, at}, By: "git"}, Profile: "p", Flapping: &Flapping{BootIDs: []string{"a", "b"}, Time: at}, Deletion: &Deletion{Kind: "Node", Name: "n", UID: "u1", Time: at}, Held: "dryRun", HeldMessage: "would delete"}
	got, fault := read(r.Encode())
	if fault != "" || !reflect.DeepEqual(got, r) {
		t.Errorf("%+v, %s", got, fault)
	}
	n := node()
	if got, fault = readRecord(n); fault != "" || !reflect.DeepEqual(got, Record{}) {
		t.Errorf("no record: %+v, %s", got, fault)
	}
	if got, fault = read(Record{NodeUID: "u2", VerifiedTime: &at, Sequence: 9}.Encode()); fault != "" || !reflect.DeepEqual(got, Record{}) {
		t.Errorf("an earlier node's record: %+v, %s", got, fault)
	}
	for uid, want := range map[string]bool{"u1": true, "u": false, "u2": false} {
		if n.Annotations[AnnotationRecord] = (Record{NodeUID: uid, Sequence: 9}).Encode(); CarriesRecord(n) != want {
			t.Errorf("the record of %s counts as one of %s: %t", uid, n.UID, !want)
		}
	}
}

// unread is the record of node u1, whose record cannot be read.
var unread = Record{VerifiedTime: ptr.To(created.UTC())}

// A record that cannot be read or trusted counts as none, except for what protects the node from deletion: the node may
// have passed since its creation.
func TestAnUnreadableRecordKeepsTheGuard(t *testing.T) {
	overflow := func(key string, n int64) string {
		return `{"nodeUID":"u1","` + key + `":` + strconv.FormatInt(n, 10) + `}`
	}
	for _, raw := range []string{"", "{", "[]", "null x", `{"nodeUID":"u1","sequence":"x"}`, strings.Repeat("[", 100_000), "\x00\xff",
		overflow("sequence", -1), overflow("sequence", math.MaxInt32), overflow("sequence", math.MaxInt64), overflow("attempts", -5), overflow("attempts", math.MaxInt32),
		overflow("inconclusive", math.MaxInt32), overflow("inconclusive", -1), overflow("durationMs", -1), overflow("shared", -1),
		`{"nodeUID":"u1","lastTime":"9999-12-31T23:59:59-23:59"}`, `{"nodeUID":"u1","lastTime":"10000-01-01T00:00:00Z"}`, `{"nodeUID":"u1","lastTime":"0001-01-01T00:00:00Z"}`, `{"nodeUID":"u1","verifiedTime":"1969-01-01T00:00:00Z"}`,
		`{"nodeUID":"u1","lastMessage":"` + strings.Repeat("x", maxText+1) + `"}`, `{"nodeUID":"u1","suspicion":{"time":"2026-01-01T00:00:00Z","type":"` + strings.Repeat("x", maxText+1) + `"}}`,
		`{"nodeUID":"u1","cleared":[` + strings.Repeat(`{"time":"2026-01-01T00:00:00Z"},`, MaxCleared) + `{"time":"2026-01-01T00:00:00Z"}]}`,
		`{"nodeUID":"u1","unknown":"` + strings.Repeat("x", maxRecord) + `"}`, overflow("durationMs", math.MaxInt64), `{"nodeUID":"u1","cleared":[{"time":"1000-01-01T00:00:00Z"}]}`,
		`{"nodeUID":"u1","flapping":{"bootIDs":["a"],"time":"2026-01-01T00:00:00Z"}}`,
		`{"nodeUID":"u1","flapping":{"bootIDs":["a","b"],"time":"0001-01-01T00:00:00Z"}}`,
		`{"nodeUID":"u1","flapping":{"bootIDs":["a","` + strings.Repeat("b", maxText+1) + `"],"time":"2026-01-01T00:00:00Z"}}`,
		`{"nodeUID":"u1","takenBack":{"passes":["1000-01-01T00:00:00Z"]}}`, `{"nodeUID":"u1","takenBack":{"by":"` + strings.Repeat("x", maxText+1) + `"}}`,
		`{"nodeUID":"u1","takenBack":{"passes":[` + strings.Repeat(`"2026-01-01T00:00:00Z",`, MaxTakenBack) + `"2026-01-01T00:00:00Z"]}}`,
		`{"nodeUID":"u1","nextAttemptTime":"0000-01-01T00:00:00Z"}`, `{"nodeUID":"u1","deletion":{}}`, `{"nodeUID":"u1","deletion":{"time":"1000-01-01T00:00:00Z"}}`} {
		r, fault := read(raw)
		if !reflect.DeepEqual(r, unread) || !r.MayHaveVerified() {
			t.Errorf("%.60q: %+v", raw, r)
		}
		if fault == "" || len(fault) > 2*attempt.MaxMessage || strings.ContainsAny(fault, "\n\x00") {
			t.Errorf("%.60q: fault %q", raw, fault)
		}
	}
	odd := node()
	odd.Annotations[AnnotationRecord] = "{"
	if r, _ := readRecord(odd); !r.MayHaveVerified() || !encodableTime(r.VerifiedTime) {
		t.Errorf("a node without a creation time: %+v", r)
	}
	for _, raw := range []string{"null", "{}", `{"nodeUID":"u2","sequence":-1}`} {
		if r, fault := read(raw); fault != "" || !reflect.DeepEqual(r, Record{}) {
			t.Errorf("%s, which is no record of this node: %+v, %s", raw, r, fault)
		}
	}
	if r, fault := read(overflow("sequence", maxCount)); fault != "" || r.Sequence != maxCount {
		t.Errorf("the largest count: %+v, %s", r, fault)
	}
}

func TestMayHaveVerified(t *testing.T) {
	for name, tc := range map[string]struct {
		r    Record
		want bool
	}{
		"never":                {Record{Sequence: 5}, false},
		"once":                 {Record{VerifiedTime: ptr.To(time.Unix(1, 0))}, true},
		"passed, no time said": {Record{LastOutcome: attempt.Passed}, false},
	} {
		if tc.r.MayHaveVerified() != tc.want {
			t.Errorf("%s: %v", name, !tc.want)
		}
	}
}

// Any annotation can be read, and what is read can be written again, because decisions write records that they have
// read. What is written about any condition or request can be read, too.
func FuzzRecord(f *testing.F) {
	at := time.Unix(1_772_366_400, 0).UTC()
	f.Add(Record{NodeUID: "u1", Sequence: 1, LastTime: &at, Deletion: &Deletion{Time: at}}.Encode())
	for _, raw := range []string{"", "{", "null", `{"nodeUID":"u1"}`, `{"nodeUID":"u1","sequence":1e9}`, `{"nodeUID":"u1","lastMessage":"\ud800"}`,
		`{"nodeUID":"u1","lastTime":"9999-12-31T23:59:59-23:59"}`, `{"nodeUID":"u1","lastTime":"1970-01-01T00:00:00+23:59"}`, `{"nodeUID":"u1","deletion":{"time":"9999-12-31T24:00:00Z"}}`} {
		f.Add(raw)
	}
	for _, at := range []string{"null", `"0001-01-01T00:00:00Z"`, `"1969-12-31T23:59:59Z"`, `"9999-12-31T23:59:59-23:59"`, `"2026-03-01T12:00:00Z"`} {
		f.Add(`{"type":"KernelDeadlock","status":"True","lastTransitionTime":` + at + `}`)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		r, fault := read(raw)
		if fault != "" && !reflect.DeepEqual(r, unread) {
			t.Errorf("half a record: %+v", r)
		}
		for _, written := range writes(raw) {
			if again, fault := read(written.Encode()); fault != "" || again.Encode() != written.Encode() {
				t.Errorf("written %s, read %+v: %s", written.Encode(), again, fault)
			}
		}
		again, fault := read(r.Encode())
		if r.NodeUID == "u1" && (fault != "" || again.Sequence != r.Sequence || again.MayHaveVerified() != r.MayHaveVerified()) {
			t.Errorf("read %+v, written and read again %+v: %s", r, again, fault)
		}
		c := Condition{Status: "Unknown", Reason: r.LastReason, Message: r.LastMessage}
		for _, when := range []*time.Time{r.LastTime, r.VerifiedTime, r.NextAttemptTime} {
			if when != nil {
				c.Since = *when
				if patch := string(c.Patch("u1", nil)); strings.Contains(patch, `"10000-`) {
					t.Errorf("no API server reads the time in %s", patch)
				}
			}
		}
	})
}

// writes are records that the controller writes about what others write: a condition that makes the node suspect, and a
// request.
func writes(raw string) []Record {
	var all []Record
	c := corev1.NodeCondition{}
	if json.Unmarshal([]byte(raw), &c) == nil && len(c.Type)+len(c.Status) <= maxText {
		s := SuspicionOf(c)
		all = append(all, Record{NodeUID: "u1", Suspicion: &s, Cleared: []Suspicion{s}})
		all[0].Suspicion.Time, all[0].Cleared[0].Time = time.Unix(1, 0).UTC(), time.Unix(1, 0).UTC()
	}
	if id := strings.ToValidUTF8(raw, ""); len(id) <= 253 { // the API server holds no other text
		s := Suspicion{Request: id, Time: time.Unix(1, 0).UTC()}
		all = append(all, Record{NodeUID: "u1", Suspicion: &s}, Record{NodeUID: "u1", Request: id, RequestTime: &s.Time})
	}
	return all
}

// FuzzOwned checks that any annotation of owners can be read, and that what is read is written back the same.
func FuzzOwned(f *testing.F) {
	for _, raw := range []string{"", "null", "[]", `{"u1":"readiness.k8s.io/a:NoSchedule"}`, `{"u1":"a","u2":":","u3":"a:b:c"}`, `{"u1":7}`, `{"\ud800":"\ud800:x"}`} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationRules: raw}}}
		owned := OwnedOn(n)
		n.Annotations[AnnotationRules] = owned.Encode()
		if again := OwnedOn(n); !maps.Equal(again, owned) {
			t.Errorf("%q is read as %v, and as %v once it was written", raw, owned, again)
		}
	})
}
