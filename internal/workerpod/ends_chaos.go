//go:build chaos

package workerpod

import "time"

// endsWithin is shortened for test/chaos, so that a run of half a minute shows what becomes of a worker that does not
// end.
const endsWithin = 4 * time.Second
