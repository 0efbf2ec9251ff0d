package rules

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

// Rules are left to the node-readiness-controller while its Lease in one of its namespaces is renewed, and for a minute
// after the last renewal. Neither the duration nor the holder of a Lease counts. The first version that is observed may
// be of a Lease that nobody renews: rules wait for a renewal for 15 seconds.
func TestStandBack(t *testing.T) {
	type step struct {
		at        time.Duration
		namespace string // of the Lease that is written then; empty for none
		want      rule.ServingState
	}
	const back, waits, serves = rule.StandingBack, rule.Unknown, rule.Serving
	for name, c := range map[string]struct {
		takeOver, everywhere bool
		steps                []step
	}{
		"no Lease":           {steps: []step{{0, "", serves}, {time.Hour, "", serves}}},
		"nobody renews it":   {steps: []step{{0, "a", waits}, {14 * time.Second, "", waits}, {15 * time.Second, "", serves}}},
		"renewed":            {steps: []step{{0, "a", waits}, {time.Second, "a", back}, {3 * time.Second, "a", back}}},
		"renewed no more":    {steps: []step{{0, "a", waits}, {1, "a", back}, {time.Minute, "", back}, {time.Minute + 1, "", serves}}},
		"renewed late":       {steps: []step{{0, "a", waits}, {30 * time.Second, "", serves}, {40 * time.Second, "a", back}}},
		"once a minute":      {steps: []step{{0, "a", waits}, {1, "a", back}, {time.Minute, "a", back}, {2*time.Minute - 1, "", back}}},
		"once in 61 seconds": {steps: []step{{0, "a", waits}, {1, "a", back}, {61*time.Second + 1, "", serves}, {62 * time.Second, "a", back}}},
		"in the second":      {steps: []step{{0, "b", waits}, {1, "b", back}}},
		"in both":            {steps: []step{{0, "a", waits}, {0, "b", waits}, {1, "b", back}, {2, "a", back}}},
		"one renewed":        {steps: []step{{0, "a", waits}, {0, "b", waits}, {1, "b", back}, {20 * time.Second, "", back}}},
		"a tenant's":         {steps: []step{{0, "tenant", serves}, {1, "tenant", serves}, {2, "tenant", serves}}},
		"taken over":         {takeOver: true, steps: []step{{0, "a", serves}, {1, "a", serves}}},
		"no namespace":       {everywhere: true, steps: []step{{0, "a", serves}, {1, "a", serves}}},
		"a clock set back":   {steps: []step{{0, "a", waits}, {1, "a", back}, {-time.Hour, "", back}}},
	} {
		f := serve(t)
		f.Config.TakeOver, f.Config.OtherControllerNamespaces = c.takeOver, []string{"a", "b"}
		if c.everywhere {
			f.Config.OtherControllerNamespaces = nil
		}
		state := func() (rule.ServingState, string) { return f.serving.state(f.Config, true, f.Now()) }
		if have, _ := state(); have != waits && !c.takeOver && !c.everywhere {
			t.Errorf("%s: %s before the Leases are listed", name, have)
		}
		f.serving.nrcListed()
		began := time.Now()
		for i, s := range c.steps {
			f.Now = func() time.Time { return began.Add(s.at) }
			if s.namespace != "" {
				f.serving.observeNRC(heldForGood(s.namespace, i), f.Now())
				f.serving.observeNRC(heldForGood(s.namespace, i), f.Now()) // events repeat themselves
			}
			if have, why := state(); have != s.want || have != serves && !strings.Contains(why, rule.NRCLease) {
				t.Errorf("%s, step %d: %s (%s), want %s", name, i, have, why, s.want)
			}
		}
	}
}

// heldForGood is a version of NRC's Lease that somebody holds for 68 years.
func heldForGood(namespace string, version int) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: rule.NRCLease, ResourceVersion: fmt.Sprint(version)},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("nrc"), LeaseDurationSeconds: ptr.To[int32](math.MaxInt32)},
	}
}

// Only the process that holds the controller's Lease watches who serves rules.
func TestOnlyTheLeaderWatches(t *testing.T) {
	if r, ok := any(&Watch{}).(manager.LeaderElectionRunnable); ok && !r.NeedLeaderElection() {
		t.Error("every replica watches the rules")
	}
	if (&Lister{}).NeedLeaderElection() {
		t.Error("only the leader knows the rules that its webhook needs")
	}
}
