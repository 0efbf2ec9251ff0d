//go:build chaos

package workerpod

import "time"

// terminationSlack is shortened for test/chaos, so that a run of half a minute shows what becomes of a worker that does
// not end.
const terminationSlack = 4 * time.Second
