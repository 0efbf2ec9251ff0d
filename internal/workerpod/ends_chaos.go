//go:build chaos

package workerpod

import "time"

// terminationSlack is short for test/chaos, so that a run of half a minute shows what happens to a worker that does not
// end.
const terminationSlack = 4 * time.Second
