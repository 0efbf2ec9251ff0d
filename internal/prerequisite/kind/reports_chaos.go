//go:build chaos

package kind

import "time"

// ReportsWithin is short for test/chaos, so that a node that a new leader finds rebooted is verified within a run.
const ReportsWithin = 6 * time.Second
