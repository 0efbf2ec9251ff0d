package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// tally counts what happened. The zero value is ready for use.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (t *tally) add(what string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[what] += n
}

// String lists all, by name.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(t.counts)) {
		fmt.Fprintf(&b, "%8d  %s\n", t.counts[what], what)
	}
	return b.String()
}
