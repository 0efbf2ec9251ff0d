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

// kept is the evidence that was read about nodes whose deletion is held, by UID. It only saves requests: a new leader
// reads again, and no deletion is decided on it. The zero value is ready for use.
type kept[T any] struct{ of map[types.UID]reading[T] }

// reading is what was read about one node.
type reading[T any] struct {
	about string // see aspects
	value T
	// since is when the value was first read, at when it was last.
	since, at time.Time
}

// get returns what was read before, if the node has not changed in what it was read for and the value is young
// enough: at most twice as old as it was when it was last read, at least one interval and at most keptFor. Otherwise,
// and if fresh is set, it reads again. again is true for a value from before.
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

// aspects identifies what a node's pods and owner depend on as far as the node shows it: which machine it is,
// whose, whether it is cordoned, and the last attempt or comparison that was recorded. A heartbeat changes none of
// it.
func aspects(n *corev1.Node, r marks.Record) string {
	o := owner.Of(n)
	id := fmt.Sprint(n.Spec.ProviderID, n.Spec.Unschedulable, o.Managed, o.Pool, o.UIDs)
	id += fmt.Sprint(r.Sequence, r.LastTime)
	if r.DeadlineCause != nil {
		id += fmt.Sprint(r.DeadlineCause.Time)
	}
	return id
}
