//go:build linux

package realnode

import (
	"context"
	"strconv"
)

// StartCSIDriver starts a CSI driver (see csidriver) on the node, which the kubelet registers in the node's CSINode. volumes is
// how many volumes it says that the node can have; 0 says nothing about it. The node runs one at a time.
func (n *Node) StartCSIDriver(driver string, volumes int) error {
	return n.launch("csidriver", n.cluster.built("csidriver"), "-driver", driver, "-node", n.Name, "-volumes", strconv.Itoa(volumes))
}

// StopCSIDriver ends it; the kubelet takes it out of the CSINode.
func (n *Node) StopCSIDriver(ctx context.Context) error { return n.signal(ctx, "csidriver", "TERM") }
