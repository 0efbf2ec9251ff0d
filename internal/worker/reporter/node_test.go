package reporter

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 5e8, time.UTC)

func TestTheTransitionTimeMovesWithTheStatus(t *testing.T) {
	second, earlier := noon.Truncate(time.Second), noon.Add(-time.Hour).Truncate(time.Second)
	for _, c := range []struct {
		name    string
		present *corev1.NodeCondition
		status  corev1.ConditionStatus
		want    time.Time
	}{
		{"none before", nil, "True", second},
		{"the same status, another reason", &corev1.NodeCondition{Status: "True", Reason: "Other", LastTransitionTime: metav1.NewTime(earlier)}, "True", earlier},
		{"another status", &corev1.NodeCondition{Status: "False", LastTransitionTime: metav1.NewTime(earlier)}, "True", second},
		{"one without a time", &corev1.NodeCondition{Status: "True"}, "True", second},
	} {
		got := nextCondition(c.present, "T", observation{c.status, "R", "M"}, noon)
		if want := (corev1.NodeCondition{Type: "T", Status: c.status, LastHeartbeatTime: metav1.NewTime(second), LastTransitionTime: metav1.NewTime(c.want), Reason: "R", Message: "M"}); got != want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, want)
		}
	}
}

func TestDue(t *testing.T) {
	c := Config{Heartbeat: 5 * time.Minute, Grace: time.Second}
	ok, fails, gone := observation{"True", "EndpointOK", "m"}, observation{"False", "EndpointNotReady", "m"}, observation{"False", "EndpointConnectionError", "m"}
	as := func(o observation) *corev1.NodeCondition {
		return &corev1.NodeCondition{Status: o.status, Reason: o.reason, Message: o.message}
	}
	for _, x := range []struct {
		name    string
		present *corev1.NodeCondition
		age     time.Duration
		o       observation
		failing time.Duration
		want    bool
	}{
		{"no condition", nil, 0, ok, 0, true},
		{"no condition, and failing for a moment", nil, 0, fails, 0, true},
		{"nothing changed", as(ok), time.Minute, ok, 0, false},
		{"the heartbeat", as(ok), 5 * time.Minute, ok, 0, true},
		{"written in a time to come", as(ok), -time.Second, ok, 0, true},
		{"turns healthy", as(fails), 0, ok, 0, true},
		{"fails for a moment", as(ok), time.Minute, fails, 0, false},
		{"fails for a moment as the heartbeat is due", as(ok), time.Hour, fails, 0, false},
		{"fails for the grace", as(ok), 0, fails, time.Second, true},
		{"fails otherwise", as(fails), 0, gone, time.Hour, true},
		{"Unknown since a shutdown", &corev1.NodeCondition{Status: "Unknown"}, 0, fails, 0, true},
		{"another message at once", as(fails), time.Second, observation{fails.status, fails.reason, "n"}, 0, false},
		{"another message", as(fails), 10 * time.Second, observation{fails.status, fails.reason, "n"}, 0, true},
	} {
		if got := due(c, x.present, noon.Add(-x.age), x.o, x.failing, noon); got != x.want {
			t.Errorf("%s: got %v", x.name, got)
		}
	}
}
