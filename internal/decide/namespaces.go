package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// WorkerNamespaces records where the leader creates worker pods, and where earlier leaders created pods that may still
// run. A controller with another worker.namespace has no right to read the previous one. So the namespaces are kept
// where the next leader can read them. The zero value is that of an earlier version.
type WorkerNamespaces struct {
	// Namespace is the leader's worker.namespace.
	Namespace string `json:"namespace"`
	// Seconds is the longest activeDeadlineSeconds of the pods that the leader creates.
	Seconds int64 `json:"seconds"`
	// Former are the namespaces before it, the latest last.
	Former []FormerNamespace `json:"former,omitempty"`
}

// FormerNamespace is a namespace in which leaders no longer create workers.
type FormerNamespace struct {
	Namespace string `json:"namespace"`
	// Since is when a leader first used another one, on that leader's clock. A node that was created later has no worker
	// in this namespace.
	Since time.Time `json:"since"`
	// Seconds is how long a worker may run in this namespace after Since: the longest activeDeadlineSeconds of its
	// workers.
	Seconds int64 `json:"seconds"`
}

// formerSlack is added to the deadline of a pod that no controller watches: the kubelet's grace period, and the
// difference between the clocks of two controllers.
const formerSlack = clockTolerance + 30*time.Second

// maxFormer bounds the seconds that the controller trusts. The longest deadline that the configuration allows is below
// it.
const maxFormer = 2 * 366 * 24 * 60 * 60

// Until is the time after which no worker runs in the namespace.
func (f FormerNamespace) Until() time.Time {
	return f.Since.Add(time.Duration(min(max(f.Seconds, 0), maxFormer))*time.Second + formerSlack)
}

// Next is the state to keep once a leader creates workers in the namespace, with a deadline of at most the given
// seconds.
func (w WorkerNamespaces) Next(namespace string, seconds int64, now time.Time) WorkerNamespaces {
	former := slices.Clone(w.Former)
	if w.Namespace != "" && w.Namespace != namespace {
		since := now.UTC().Truncate(time.Second)
		former = append(former, FormerNamespace{Namespace: w.Namespace, Since: since, Seconds: w.Seconds})
	}
	for i, f := range former {
		if f.Since.After(now) {
			former[i].Since = now.UTC().Truncate(time.Second) // of a leader whose clock ran fast, or forged
		}
	}
	former = slices.DeleteFunc(former, func(f FormerNamespace) bool {
		return f.Namespace == namespace || !now.Before(f.Until())
	})
	return WorkerNamespaces{Namespace: namespace, Seconds: seconds, Former: former}
}

// noOrphanedWorker reports whether no worker of the node can run in a former namespace. Otherwise the plan waits for
// that worker's deadline.
func (d *decision) noOrphanedWorker() bool {
	var f FormerNamespace // the one in which a worker may run longest
	for _, x := range d.in.FormerNamespaces {
		existed := d.in.Node.Created.Before(x.Since.Add(clockTolerance))
		if existed && d.now.Before(x.Until()) && (f == FormerNamespace{} || x.Until().After(f.Until())) {
			f = x
		}
	}
	if (f == FormerNamespace{}) {
		return true
	}
	number := d.in.NextAttempt().Number
	pod := f.Namespace + "/" + workerpod.VerifyName(workerpod.Target{Name: d.in.Node.Name, UID: d.in.Node.UID}, number)
	until := f.Until().UTC().Format(time.RFC3339)
	d.requeueAfter(f.Until().Sub(d.now))
	message := fmt.Sprintf("worker.namespace was changed, and worker %s may still run. The controller no longer sees "+
		"it; it ends by %s, and attempt %d starts then", pod, until, number)
	d.Condition = unknownCondition(marks.ReasonVerifying, message, f.Since)
	d.Events = []Event{{Reason: EventWorkerOrphaned, Key: EventWorkerOrphaned.Name + "/" + pod,
		Message: message + ". kubectl node-ready doctor lists such pods"}}
	return false
}
