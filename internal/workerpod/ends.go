//go:build !chaos

package workerpod

import "time"

// terminationSlack is how long past its grace period a terminating pod may take to end: the kubelet kills its
// containers when that is over, and then unmounts volumes and takes down the network.
const terminationSlack = time.Minute
