package event

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

func makeNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
}

func passed(key string) decide.Event {
	return decide.Event{Reason: decide.EventPassed, Message: "all checks passed", Key: key}
}

// faults lists what the API server would refuse in an event that is created through events.k8s.io/v1
// (k8s.io/kubernetes 1.36 pkg/apis/core/validation/events.go, ValidateEventCreate).
func faults(e *eventsv1.Event) []string {
	out := validation.IsDNS1123Subdomain(e.Name)
	out = append(out, validation.IsQualifiedName(e.ReportingController)...)
	for rule, holds := range map[string]bool{
		"namespace":                  e.Namespace == metav1.NamespaceDefault && e.Regarding.Namespace == "",
		"eventTime":                  !e.EventTime.IsZero(),
		"type":                       e.Type == corev1.EventTypeNormal || e.Type == corev1.EventTypeWarning,
		"reportingInstance":          e.ReportingInstance != "" && len(e.ReportingInstance) <= 128,
		"action":                     e.Action != "" && len(e.Action) <= 128,
		"reason":                     e.Reason != "" && len(e.Reason) <= 128,
		"note":                       len(e.Note) <= 1024 && utf8.ValidString(e.Note),
		"series":                     e.Series == nil,
		"deprecatedSource":           e.DeprecatedSource == corev1.EventSource{},
		"deprecatedFirstTimestamp":   e.DeprecatedFirstTimestamp.IsZero(),
		"deprecatedLastTimestamp":    e.DeprecatedLastTimestamp.IsZero(),
		"deprecatedCount":            e.DeprecatedCount == 0,
		"resourceVersion, if set":    e.ResourceVersion == "",
		"generateName, beside name":  e.GenerateName == "",
		"regarding names its object": e.Regarding.Kind == "Node" && e.Regarding.APIVersion == "v1" && e.Regarding.Name != "" && e.Regarding.UID != "",
	} {
		if !holds {
			out = append(out, rule)
		}
	}
	return out
}

func TestEventIsValid(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 0, 0, 123456789, time.UTC)
	got := object(instance(), onNode(makeNode("node-1")), at, passed("1"))
	if f := faults(got); len(f) > 0 {
		t.Errorf("the API server would refuse %v of %+v", f, got)
	}
	if !got.EventTime.Time.Equal(at) || got.Note != "all checks passed" || got.ReportingController != "kube-node-ready-controller" ||
		!strings.HasPrefix(got.ReportingInstance, "kube-node-ready-controller-") || !strings.HasPrefix(got.Name, "node-1.") {
		t.Errorf("got %+v", got)
	}
}

// nodeNames are legal names of nodes, those that are hard to cut first.
func nodeNames() []string {
	names := []string{"a", "0", "ip-10-0-0-1.eu-central-1.compute.internal", strings.Repeat("a", validation.DNS1123SubdomainMaxLength)}
	for length := 195; length <= validation.DNS1123SubdomainMaxLength; length++ {
		for _, seam := range []string{".", "-", "--", "-----"} {
			for at := 195; at+len(seam) < length; at++ {
				names = append(names, strings.Repeat("a", at)+seam+strings.Repeat("b", length-at-len(seam)))
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := make([]byte, 1+random.IntN(validation.DNS1123SubdomainMaxLength))
		for i := range b {
			b[i] = "ab09--.."[random.IntN(8)]
		}
		names = append(names, string(b))
	}
	legal := names[:0]
	for _, n := range names {
		if len(validation.IsDNS1123Subdomain(n)) == 0 {
			legal = append(legal, n)
		}
	}
	return legal
}

func TestNamesAreValid(t *testing.T) {
	names := nodeNames()
	if len(names) < 5000 {
		t.Fatalf("only %d names to try", len(names))
	}
	for _, n := range names {
		got := name(onNode(makeNode(n)), passed("1"))
		if f := validation.IsDNS1123Subdomain(got); len(f) > 0 {
			t.Fatalf("node %s: name %s: %v", n, got, f)
		}
		prefix, _, _ := strings.Cut(got, got[len(got)-17:])
		if !strings.HasPrefix(n, prefix) || len(n) <= 236 && prefix != n {
			t.Fatalf("node %s: name %s", n, got)
		}
	}
}

func FuzzName(f *testing.F) {
	f.Add("a", "b", "c", "d")
	f.Add(strings.Repeat("a", 235)+"-.b", "", "Held", "1")
	f.Fuzz(func(t *testing.T, node, uid, reason, key string) {
		if len(validation.IsDNS1123Subdomain(node)) > 0 {
			return
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID(uid)}}
		if got := name(onNode(n), decide.Event{Reason: decide.Reason{Name: reason}, Key: key}); len(validation.IsDNS1123Subdomain(got)) > 0 {
			t.Errorf("node %q: name %q", node, got)
		}
	})
}

func TestNamesTellEventsApart(t *testing.T) {
	n, held := makeNode("node-1"), decide.Event{Reason: decide.EventHeld, Key: "1/maxUnhealthy"}
	if first, again := name(onNode(n), held), name(onNode(makeNode("node-1")), held); first != again {
		t.Errorf("one event is named %s and %s", first, again)
	}
	replaced := makeNode("node-1")
	replaced.UID = "another"
	long := strings.Repeat("a", 250)
	for what, pair := range map[string][2]string{
		"second guard in one attempt": {name(onNode(n), held), name(onNode(n), decide.Event{Reason: decide.EventHeld, Key: "1/budget"})},
		"reason":                      {name(onNode(n), held), name(onNode(n), decide.Event{Reason: decide.EventQuarantined, Key: "1/maxUnhealthy"})},
		"node replaced":               {name(onNode(n), held), name(onNode(replaced), held)},
		"reason and key run together": {name(onNode(n), decide.Event{Reason: decide.Reason{Name: "A"}, Key: "B1"}), name(onNode(n), decide.Event{Reason: decide.Reason{Name: "AB"}, Key: "1"})},
		"long names of nodes":         {name(onNode(makeNode(long+"a")), held), name(onNode(makeNode(long+"b")), held)},
	} {
		if pair[0] == pair[1] {
			t.Errorf("%s: both are named %s", what, pair[0])
		}
	}
}

func TestNoteIsCutAtARune(t *testing.T) {
	for _, r := range []string{"a", "é", "世", "🙂"} {
		for pad := range 4 {
			note := strings.Repeat("x", pad) + strings.Repeat(r, 1025)
			got := cut(note, maxNote)
			kept := strings.TrimSuffix(got, "…")
			if !utf8.ValidString(got) || len(got) > maxNote || len(got) <= maxNote-len("🙂") || kept == got || !strings.HasPrefix(note, kept) {
				t.Errorf("%d bytes and %s: cut to %d bytes, ending %q", pad, r, len(got), got[len(got)-8:])
			}
		}
	}
	for _, whole := range []string{"", "note", strings.Repeat("é", 512)} {
		if got := cut(whole, maxNote); got != whole {
			t.Errorf("%d bytes became %d", len(whole), len(got))
		}
	}
	if got := cut("a\xff\xfeb"+strings.Repeat("\xff", 2000), maxNote); !utf8.ValidString(got) || len(got) > maxNote || !strings.HasPrefix(got, "a\uFFFDb") {
		t.Errorf("bytes that are no text became %q", got)
	}
}
