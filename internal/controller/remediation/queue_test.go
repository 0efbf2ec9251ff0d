package remediation

import (
	"testing"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A node that is handed over before the reconciler has a queue is considered once it has one.
func TestConsiderBeforeTheQueue(t *testing.T) {
	r := &Reconciler{}
	r.Consider("early")
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	if err := r.queue.set(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	r.Consider("late")
	r.Consider("late")
	for _, want := range []string{"early", "late"} {
		if q.Len() == 0 {
			t.Fatalf("%s is not in the queue", want)
		}
		if got, _ := q.Get(); got.Name != want {
			t.Fatalf("%s, want %s", got.Name, want)
		}
	}
	if q.Len() != 0 {
		t.Errorf("%d more in the queue", q.Len())
	}
}
