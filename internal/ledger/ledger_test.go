package ledger

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func configMap(content string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: Name}, Data: map[string]string{KeyDeletions: content}}
}

func at(uid string) string {
	return fmt.Sprintf(`{"time":"2026-01-01T12:00:00Z","node":"n-%s","nodeUID":%q,"pool":"default","kind":"NodeClaim"}`, uid, uid)
}

func TestBounded(t *testing.T) {
	for name, long := range map[string]string{"many": "", "many with long names": strings.Repeat("x", maxField-10)} {
		c := Contents{CompleteSince: noon}
		for i := range maxEntries + 1 {
			uid := fmt.Sprint(i)
			c.Entries = append(c.Entries, Entry{Time: metav1.NewTime(noon.Add(time.Duration(i) * time.Second)), Node: long + uid, UID: uid, Kind: "Node"})
		}
		cm := &corev1.ConfigMap{}
		if err := c.Prune(noon.Add(3*time.Hour), 24*time.Hour).Write(cm); err != nil {
			t.Fatal(err)
		}
		got, err := Parse(cm)
		n := len(got.Entries)
		if err != nil || n > maxEntries || n < maxEntries/3 || long == "" && n != maxEntries {
			t.Fatalf("%s: %d entries, %v", name, n, err)
		}
		if got.Entries[n-1].UID != fmt.Sprint(maxEntries) || got.Entries[n-2].UID != fmt.Sprint(maxEntries-1) {
			t.Errorf("%s: the newest are not there", name)
		}
		if size := len(cm.Data[KeyDeletions]); size > maxBytes {
			t.Errorf("%s: %d bytes", name, size)
		}
	}
}

func TestGarbled(t *testing.T) {
	const text = "cannot parse the ledger of remediations: to start a new ledger, remove key deletions.json of ConfigMap ns/kube-node-ready-remediations"
	for name, content := range map[string]string{
		"not JSON":         "{",
		"not a list":       `{"a":1}`,
		"null":             "null",
		"two values":       "[] []",
		"a null entry":     "[null]",
		"no time":          `[{"nodeUID":"a"}]`,
		"not a time":       `[{"nodeUID":"a","time":"NaN"}]`,
		"a number":         `[{"nodeUID":"a","time":1e309}]`,
		"no node UID":      `[{"time":"2026-01-01T12:00:00Z"}]`,
		"an absurd name":   "[" + at(strings.Repeat("a", maxField+1)) + "]",
		"some good ones":   "[" + at("a") + `,{"nodeUID":7}]`,
		"cut in the midst": "[" + at("a")[:40],
	} {
		if _, err := Parse(configMap(content)); !errors.Is(err, ErrUnreadable) || err.Error() != text {
			t.Errorf("%s: %v", name, err)
		}
	}
	cm := configMap("")
	cm.BinaryData = map[string][]byte{KeyDeletions: {0xff}}
	if _, err := Parse(cm); !errors.Is(err, ErrUnreadable) {
		t.Errorf("binary: %v", err)
	}
	for _, e := range []Entry{{UID: "a", Node: "n", Kind: "Node"}, {Time: metav1.NewTime(noon), Node: "n", Kind: "Node"},
		{Time: metav1.NewTime(noon), UID: "a", Node: "n", Kind: "Node", Pool: strings.Repeat("z", maxField+1)}} {
		if e.Validate() == nil {
			t.Errorf("could not be read again: %+v", e)
		}
	}
}

// The last deletions are kept with their reasons however old they are, and the reasons of no others.
func TestHistory(t *testing.T) {
	var c Contents
	for i := range History + 2 {
		c.Entries = append(c.Entries, Entry{Time: metav1.NewTime(noon.Add(time.Duration(i) * time.Minute)), UID: fmt.Sprint(i), Reason: "why"})
	}
	late := c.Prune(noon.AddDate(1, 0, 0), time.Hour).Entries
	if len(late) != History || late[0].UID != "2" || late[0].Reason != "why" {
		t.Errorf("a year later: %d, from %+v", len(late), late[0])
	}
	soon := c.Prune(noon.Add(4*time.Hour), 24*time.Hour).Entries
	if len(soon) != History+2 || soon[1].Reason != "" || soon[2].Reason != "why" {
		t.Errorf("within the time that counts: %d, %+v", len(soon), soon[:3])
	}
	if n := len(NewerThan(soon, noon.Add(4*time.Hour), time.Hour)); n != 21 {
		t.Errorf("within the hour: %d", n)
	}
}

func TestPaused(t *testing.T) {
	for value, want := range map[string]string{"": "", "false": "", "true": "true", "a reason": "a reason"} {
		cm := configMap("[]")
		cm.Annotations = map[string]string{AnnotationPaused: value}
		if c, err := Parse(cm); err != nil || c.Paused != want {
			t.Errorf("%q: %q, %v", value, c.Paused, err)
		}
	}
}

// FuzzParse: whatever the ConfigMap holds, the ledger is read or refused as a whole, and what is read comes back when it is written.
func FuzzParse(f *testing.F) {
	f.Add("["+at("a")+","+at("b")+"]", "2026-01-01T12:00:00Z", "")
	f.Add(`[{"time":"9999-12-31T23:59:59-23:59","nodeUID":"a"}]`, "9999-12-31T23:59:59-23:59", "a reason")
	f.Add(`[{"time":"0001-01-01T00:00:00+23:59","nodeUID":"\ud800","reason":"`+"\xff"+`"}]`, "later", "false")
	f.Fuzz(func(t *testing.T, deletions, since, paused string) {
		cm := configMap(deletions)
		cm.Data[KeySince], cm.Annotations = since, map[string]string{AnnotationPaused: paused}
		c, err := Parse(cm)
		if err != nil {
			if !errors.Is(err, ErrUnreadable) {
				t.Error(err)
			}
			return
		}
		settled := c.Prune(noon, time.Hour)
		if len(c.Entries) > 0 && len(settled.Entries) == 0 || settled.HasFutureTimes(noon) {
			t.Errorf("settled to %+v", settled)
		}
		if err := settled.Write(cm); err != nil {
			t.Fatal(err)
		}
		again, err := Parse(cm)
		if err != nil || len(again.Entries) != min(len(settled.Entries), maxEntries) || again.Paused != c.Paused {
			t.Errorf("written and read again: %d of %d entries, %v", len(again.Entries), len(settled.Entries), err)
		}
	})
}
