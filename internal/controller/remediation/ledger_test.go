package remediation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// ledgerOf is a ledger that began long ago, with a ConfigMap of this content, and the server behind it.
func ledgerOf(content string) (*Ledger, *apiServer) {
	s := &apiServer{ledger: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: ledger.Name, ResourceVersion: "0"}}}
	if content == "" {
		content = "[]"
	}
	s.ledger.Data = map[string]string{ledger.KeyDeletions: content, ledger.KeySince: "2025-01-01T00:00:00Z"}
	return &Ledger{Reader: s, Writer: s, Namespace: "ns", Keep: 24 * time.Hour}, s
}

// at renders an entry in the format of version 1.
func at(uid string, when time.Time) string {
	return fmt.Sprintf(`{"time":%q,"node":"n-%s","nodeUID":%q,"pool":"default","kind":"NodeClaim"}`, when.Format(time.RFC3339), uid, uid)
}

func read(t *testing.T, l *Ledger, now time.Time) string {
	t.Helper()
	got, err := l.Read(t.Context(), now, true)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, d := range got.Entries {
		out = append(out, fmt.Sprintf("%s@%s", d.UID, d.Time.UTC().Format("02T15:04")))
	}
	return strings.Join(out, " ")
}

func deletionOf(uid string, at time.Time) ledger.Entry { return actionOn(uid, at, "NodeClaim") }

func actionOn(uid string, at time.Time, kind string) ledger.Entry {
	return ledger.Entry{Time: metav1.NewTime(at), Node: "n-" + uid, UID: uid, Pool: "default", Kind: kind}
}

func enter(t *testing.T, l *Ledger, uid string, now time.Time) error {
	t.Helper()
	return l.Append(t.Context(), deletionOf(uid, now), time.Time{}, l.Reader.(*apiServer).version())
}

func TestLedgerKeepsActions(t *testing.T) {
	s := &apiServer{}
	l := &Ledger{Reader: s, Writer: s, Namespace: "ns"}
	mustBe(t, "no ConfigMap", read(t, l, noon), "")
	mustBe(t, "the first", enter(t, l, "a", noon), nil)
	mustBe(t, "the second", enter(t, l, "b", noon.Add(time.Minute)), nil)
	l = &Ledger{Reader: s, Writer: s, Namespace: "ns"} // a successor
	got, err := l.Read(t.Context(), noon.Add(time.Minute), false)
	if err != nil || len(got.Entries) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	mustBe(t, "the first again", got.Entries[0].Time.Time.Equal(noon) && got.Entries[0].UID == "a" && got.Entries[0].Pool == "default", true)
	mustBe(t, "an hour at least, though Keep is not set", read(t, l, noon.Add(time.Hour)), "b@01T12:01")

	l, _ = ledgerOf("")
	mustBe(t, "a ConfigMap without data", read(t, l, noon), "")
	mustBe(t, "is filled", enter(t, l, "a", noon), nil)
	mustBe(t, "and read", read(t, l, noon), "a@01T12:00")

	l, _ = ledgerOf("[" + at("old", noon.Add(-25*time.Hour)) + "," + at("b", noon.Add(-time.Hour)) + "," + at("a", noon.Add(-2*time.Hour)) + "]")
	mustBe(t, "within Keep, the oldest first", read(t, l, noon), "a@01T10:00 b@01T11:00")
}

// An entry over an hour old that is entered again must count in the hourly limit.
func TestLedgerRefreshesAnEntry(t *testing.T) {
	l, _ := ledgerOf("[" + at("a", noon.Add(-90*time.Minute)) + "," + at("b", noon.Add(-time.Minute)) + "]")
	mustBe(t, "again", enter(t, l, "a", noon), nil)
	mustBe(t, "one entry, with the later time", read(t, l, noon), "b@01T11:59 a@01T12:00")
}

// Each action on a node has one entry of its own since the node last passed, however often it is tried.
func TestLedgerHasEveryAction(t *testing.T) {
	passed := noon.Add(150 * time.Second)
	old := strings.Replace(at("b", noon.Add(-25*time.Hour)), "NodeClaim", "Condition", 1)
	l, s := ledgerOf("[" + old + "," + at("a", noon.Add(-30*time.Minute)) + "]")
	for i, step := range []struct {
		e      ledger.Entry
		passed time.Time
	}{
		{actionOn("a", noon, "NodeClaim"), time.Time{}}, // again
		{actionOn("a", noon.Add(time.Minute), "Condition"), time.Time{}},
		{actionOn("a", noon.Add(2*time.Minute), "Condition"), time.Time{}}, // again
		{actionOn("a", noon.Add(3*time.Minute), "Condition"), passed},      // it has passed meanwhile
		{actionOn("b", noon.Add(4*time.Minute), "Condition"), time.Time{}}, // again, when no limit counts the first
	} {
		if err := l.Append(t.Context(), step.e, step.passed, s.version()); err != nil {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	got, err := l.Read(t.Context(), noon.Add(10*time.Minute), true)
	var list []string
	for _, d := range got.Entries {
		list = append(list, fmt.Sprintf("%s %s %s", d.Kind, d.Time.UTC().Format("15:04"), d.LastSet().UTC().Format("15:04")))
	}
	want := []string{`NodeClaim 12:00 12:00`, `Condition 12:01 12:02`, `Condition 12:03 12:03`, `Condition 12:04 12:04`}
	if err != nil || !slices.Equal(list, want) {
		t.Errorf("%v, want %v; %v", list, want, err)
	}
}

func TestLedgerEntriesFromTheFuture(t *testing.T) {
	future := "[" + at("a", noon.AddDate(50, 0, 0)) + "]"
	l, s := ledgerOf(future)
	mustBe(t, "counts as now", read(t, l, noon), "a@01T12:00")
	mustBe(t, "is corrected where it is kept", strings.Contains(s.ledger.Data[ledger.KeyDeletions], "2026-01-01T12:00:00Z"), true)
	mustBe(t, "and passes", read(t, l, noon.Add(24*time.Hour)), "")
	mustBe(t, "writes", s.writes, 1)

	l, s = ledgerOf(future)
	s.failWrite = apierrors.NewForbidden(configMaps, ledger.Name, errors.New("dry run"))
	mustBe(t, "may not write: counts as now", read(t, l, noon.Add(time.Hour)), "a@01T13:00")

	l, s = ledgerOf("[" + at("a", noon.Add(time.Minute)) + "]")
	mustBe(t, "clocks differ a little", read(t, l, noon), "a@01T12:00")
	mustBe(t, "nothing is written for that", s.writes, 0)
	mustBe(t, "another entry", enter(t, l, "b", noon), nil)
	mustBe(t, "corrects it as well", read(t, l, noon.Add(time.Hour)), "a@01T12:00 b@01T12:00")
}

func TestLedgerConflicts(t *testing.T) {
	other := func(s *apiServer) { s.ledger.ResourceVersion = "other" }
	l, s := ledgerOf("")
	s.overtake = other
	mustBe(t, "written meanwhile", apierrors.IsConflict(enter(t, l, "a", noon)), true)
	mustBe(t, "again", enter(t, l, "a", noon), nil)

	first, _ := l.Read(t.Context(), noon, true)
	mustBe(t, "written since", enter(t, l, "b", noon), nil)
	err := l.Append(t.Context(), deletionOf("c", noon), time.Time{}, first.Version)
	mustBe(t, "the limits were asked before that", apierrors.IsConflict(err), true)
	mustBe(t, "and the entry is not there", read(t, l, noon), "a@01T12:00 b@01T12:00")

	s.overtake = func(s *apiServer) { s.ledger = nil }
	mustBe(t, "deleted meanwhile", apierrors.IsConflict(enter(t, l, "a", noon)), true)
	full := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: ledger.Name}}
	s.overtake = func(s *apiServer) { s.ledger = full }
	mustBe(t, "created meanwhile", apierrors.IsConflict(enter(t, l, "a", noon)), true)

	s.failGet = apierrors.NewForbidden(configMaps, ledger.Name, errors.New("no"))
	_, err = l.Read(t.Context(), noon, true)
	mustBe(t, "an error of the API server is not ledger.ErrUnreadable", apierrors.IsForbidden(err) && !errors.Is(err, ledger.ErrUnreadable), true)
	mustBe(t, "nothing is entered blindly", apierrors.IsForbidden(enter(t, l, "a", noon)), true)
}

// A ledger that cannot be parsed holds every action, and is not changed.
func TestLedgerUnreadable(t *testing.T) {
	l, s := ledgerOf("{")
	_, err := l.Read(t.Context(), noon, true)
	mustBe(t, "read", errors.Is(err, ledger.ErrUnreadable), true)
	mustBe(t, "enter", errors.Is(enter(t, l, "b", noon), ledger.ErrUnreadable), true)
	mustBe(t, "writes", s.writes, 0)
	mustBe(t, "a deletion that could not be read again", l.Append(t.Context(), deletionOf("", noon), time.Time{}, "0") != nil, true)
	mustBe(t, "writes", s.writes, 0)
}

// A ledger that was emptied, deleted or never begun begins anew, and records since when it covers actions.
func TestLedgerIsBegun(t *testing.T) {
	full := "[" + at("a", noon.Add(-time.Minute)) + "]"
	for name, tc := range map[string]struct {
		data map[string]string
		want string
	}{
		"emptied, as by helm upgrade --force": {nil, ""},
		"the list removed by hand":            {map[string]string{ledger.KeySince: "2025-01-01T00:00:00Z"}, ""},
		"written by an older version":         {map[string]string{ledger.KeyDeletions: full}, "a@01T11:59"},
		"not a time":                          {map[string]string{ledger.KeyDeletions: full, ledger.KeySince: "yesterday"}, "a@01T11:59"},
	} {
		l, s := ledgerOf("")
		s.ledger.Data = tc.data
		got, err := l.Read(t.Context(), noon, true)
		mustBe(t, name+": begun", err == nil && got.CompleteSince.Equal(noon) && got.Version == s.version(), true)
		mustBe(t, name+": what was there", read(t, l, noon), tc.want)
		mustBe(t, name+": a deletion can be decided on it", l.Append(t.Context(), deletionOf("b", noon), time.Time{}, got.Version), nil)
		got, err = l.Read(t.Context(), noon.Add(time.Hour), true)
		mustBe(t, name+": it stays begun", err == nil && got.CompleteSince.Equal(noon), true)
		mustBe(t, name+": writes", s.writes, 2)
	}
	s := &apiServer{}
	l := &Ledger{Reader: s, Writer: s, Namespace: "ns"}
	got, err := l.Read(t.Context(), noon, true)
	mustBe(t, "deleted: begun", err == nil && got.CompleteSince.Equal(noon) && s.ledger != nil, true)

	s = &apiServer{failWrite: apierrors.NewForbidden(configMaps, ledger.Name, errors.New("no"))}
	l = &Ledger{Reader: s, Writer: s, Namespace: "ns"}
	_, err = l.Read(t.Context(), noon, true)
	mustBe(t, "it cannot be begun", apierrors.IsForbidden(err), true)
	l.ReadOnly = true
	got, err = l.Read(t.Context(), noon, true)
	mustBe(t, "a dry run begins none", err == nil && got.CompleteSince.Equal(noon) && s.writes == 1, true)

	l, s = ledgerOf("")
	s.ledger.Data[ledger.KeySince] = "2076-01-01T00:00:00Z"
	got, err = l.Read(t.Context(), noon, true)
	mustBe(t, "begun in the future", err == nil && got.CompleteSince.Equal(noon) && s.ledger.Data[ledger.KeySince] == "2026-01-01T12:00:00Z", true)
}

func TestLedgerIsReadOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := ledgerOf("[" + at("a", noon) + "]")
		for i := range 100 {
			got, err := l.Read(t.Context(), noon.Add(time.Duration(i)*15*time.Minute), false)
			mustBe(t, "what was kept ages all the same", len(got.Entries) == 1 && err == nil, i < 24*4)
		}
		mustBe(t, "reads", s.gets, 1)
		if _, err := l.Read(t.Context(), noon, true); err != nil {
			t.Error(err)
		}
		mustBe(t, "fresh reads again", s.gets, 2)
		mustBe(t, "enter", enter(t, l, "b", noon), nil)
		mustBe(t, "enter reads", s.gets, 3)
		got, _ := l.Read(t.Context(), noon, false)
		mustBe(t, "what was entered is seen at once", len(got.Entries), 2)
		mustBe(t, "reads", s.gets, 4)
		time.Sleep(ledgerAge)
		_, _ = l.Read(t.Context(), noon, false)
		mustBe(t, "reads after two seconds", s.gets, 5)
	})
}
