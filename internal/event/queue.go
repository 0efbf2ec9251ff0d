package event

import (
	"slices"
	"time"

	eventsv1 "k8s.io/api/events/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

// ranks is how many there are.
const ranks = int(decide.RankDecision) + 1

// item is an event on its way.
type item struct {
	object    *eventsv1.Event
	rank      decide.Rank
	tries     int       // that failed
	notBefore time.Time // of the next try
}

// queue holds at most limit items, in order of arrival within their rank. It is not safe for concurrent use.
type queue struct {
	limit  int
	byRank [ranks][]*item
}

func (q *queue) len() int {
	n := 0
	for _, items := range q.byRank {
		n += len(items)
	}
	return n
}

// add puts an item last in its rank. If the queue is full, it returns the item that is dropped to make room. That is
// the oldest item of the lowest rank, or the new item itself if all others rank higher.
func (q *queue) add(it *item) (dropped *item) {
	if q.len() >= q.limit {
		for rank := range q.byRank {
			if decide.Rank(rank) > it.rank {
				return it
			}
			if len(q.byRank[rank]) > 0 {
				dropped = q.remove(rank, 0)
				break
			}
		}
	}
	q.byRank[it.rank] = append(q.byRank[it.rank], it)
	return dropped
}

// take removes the first item of the highest rank that may be tried now. Where there is none, it returns how long to
// wait for one, or 0 if the queue is empty.
func (q *queue) take(now time.Time) (it *item, wait time.Duration) {
	for rank := ranks - 1; rank >= 0; rank-- {
		for i, it := range q.byRank[rank] {
			left := it.notBefore.Sub(now)
			if left <= 0 {
				return q.remove(rank, i), 0
			}
			if wait == 0 || left < wait {
				wait = left
			}
		}
	}
	return nil, wait
}

// remove keeps no reference to what it removes: slices.Delete clears the tail.
func (q *queue) remove(rank, i int) *item {
	it := q.byRank[rank][i]
	q.byRank[rank] = slices.Delete(q.byRank[rank], i, i+1)
	return it
}
