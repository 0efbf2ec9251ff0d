//go:build !chaos

package workerpod

import "time"

// terminationSlack is how long after its grace period a terminating pod may take to end. The kubelet kills its
// containers at the end of that period, and then unmounts volumes and removes the network.
const terminationSlack = time.Minute
