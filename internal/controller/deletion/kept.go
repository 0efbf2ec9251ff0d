package deletion

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/remediation/owner"
)

// keptFor is the longest time for which evidence about a held node is reused. After that time, a failure is too old for
// a deletion anyway, and another attempt must confirm it first (see exhaustedRetrySeconds).
const keptFor = 10 * time.Minute

// kept is the evidence that was read about nodes whose deletion is held, by UID. It only saves requests. A new leader
// reads again, and the controller never decides on a deletion with kept evidence. The zero value is ready for use.
type kept[T any] struct{ of map[types.UID]reading[T] }

// reading is what was read about one node.
type reading[T any] struct {
	about string // see aspects
	value T
	// since is when the value was first read, at when it was last.
	since, at time.Time
}

// get returns the value that was read before, if the node's aspects have not changed and the value is recent enough. A
// value that has long been the same is kept for longer. After its last read, it stays valid for as long as it had been
// unchanged by then. The least time is one interval, and the longest is keptFor. Otherwise, or if fresh is set, get
// reads again. The result again is true if the value is from an earlier read.
func (k *kept[T]) get(n *corev1.Node, r marks.Record, now time.Time, interval time.Duration, fresh bool,
	read func() (T, error)) (value T, again bool, err error) {
	have, ok := k.of[n.UID]
	about := aspects(n, r)
	good := min(max(have.at.Sub(have.since), interval), keptFor)
	if ok && !fresh && have.about == about && now.Sub(have.at) < good {
		return have.value, true, nil
	}
	if value, err = read(); err != nil {
		return value, false, err
	}
	since := now
	if ok && equality.Semantic.DeepEqual(have.value, value) {
		since = have.since
	}
	if k.of == nil {
		k.of = map[types.UID]reading[T]{}
	}
	maps.DeleteFunc(k.of, func(_ types.UID, old reading[T]) bool { return now.Sub(old.at) > 2*keptFor })
	k.of[n.UID] = reading[T]{about: about, value: value, since: since, at: now}
	return value, false, nil
}

// aspects identifies the state of a node on which its pods and its owner depend. That is which machine it is, who owns
// it, whether it is cordoned, and the last attempt or comparison that was recorded. A heartbeat does not change it.
func aspects(n *corev1.Node, r marks.Record) string {
	o := owner.Of(n)
	id := fmt.Sprint(n.Spec.ProviderID, n.Spec.Unschedulable, o.Managed, o.Pool, o.UIDs)
	id += fmt.Sprint(r.Sequence, r.LastTime)
	if r.DeadlineCause != nil {
		id += fmt.Sprint(r.DeadlineCause.Time)
	}
	return id
}
