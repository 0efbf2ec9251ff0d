//go:build !chaos

package kind

import "time"

// ReportsWithin is how long a node must be Ready before what is older than the node, or than its boot, counts. In that
// time its kubelet and its agents report what has changed. It is on the observer's clock.
const ReportsWithin = time.Minute
