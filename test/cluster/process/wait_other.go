//go:build unix && !linux

package process

import (
	"syscall"
	"time"
)

// awaitExit blocks until the child has ended. Without waitid the child cannot be observed
// before it is reaped; its group disappears at the moment it and its children have ended.
func awaitExit(pid int) {
	for syscall.Kill(-pid, 0) == nil {
		time.Sleep(20 * time.Millisecond)
	}
}
