package decide

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// largeFleet is 5000 nodes of one NodePool, in three zones.
func largeFleet() []NodeSummary {
	var fleet []NodeSummary
	for i := range 5000 {
		fleet = append(fleet, NodeSummary{Name: fmt.Sprintf("n-%d", i), UID: fmt.Sprintf("u-%d", i), Pool: "pool",
			Zone: fmt.Sprintf("zone-%d", i%3), Created: now.Add(-time.Duration(i) * time.Minute), Unhealthy: i%50 == 0})
	}
	return fleet
}

// BenchmarkHeldNode measures one look at a held node of the large fleet, with both limits on unhealthy nodes set. Its
// evidence is loaded: what the look itself derives from that is what is measured.
func BenchmarkHeldNode(b *testing.B) {
	w := pool(func(w *world) { w.fleet, w.workloads.Names = largeFleet(), []string{"a/b"} })
	in := exhausted(perZone, heldBy(GuardSparePods), func(in *Input) {
		in.Node.Name, in.Node.UID, in.Node.Zone = "n-0", "u-0", "zone-0"
	})
	ev := Evidence{}
	if _, err := Resolve(&in, &ev, func() time.Time { return now }, w.loaders(&in, &ev, func(Plan) {})); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if plan := Next(in, ev, now); plan.Step != StepNone || reasonOf(plan.Condition) != marks.ReasonRemediationHeld {
			b.Fatalf("%+v", plan)
		}
	}
}

// BenchmarkCountNodes measures the counts of the large fleet, which serve all held nodes for two seconds.
func BenchmarkCountNodes(b *testing.B) {
	fleet := largeFleet()
	ledger := []ledger.Entry{{Time: metav1.NewTime(now.Add(-time.Minute)), UID: "gone", Pool: "pool", Zone: "zone-0"}}
	b.ReportAllocs()
	for b.Loop() {
		if n := CountNodes(fleet, ledger, time.Hour, now).of(exhausted(), group{pool: "pool"}); n.bad != 101 {
			b.Fatalf("%+v", n)
		}
	}
}
