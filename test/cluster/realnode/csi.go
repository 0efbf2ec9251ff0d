//go:build linux

package realnode

import (
	"context"
	"strconv"
)

// StartCSIDriver starts a CSI driver on the node (see csidriver), which the kubelet registers in the node's CSINode.
// The driver reports that the node can have the given number of volumes. With volumes 0, it reports no limit. The node
// runs one driver at a time.
func (n *Node) StartCSIDriver(driver string, volumes int) error {
	return n.launch("csidriver", n.cluster.built("csidriver"), "-driver", driver, "-node", n.Name, "-volumes", strconv.Itoa(volumes))
}

// StopCSIDriver ends it; the kubelet takes it out of the CSINode.
func (n *Node) StopCSIDriver(ctx context.Context) error { return n.signal(ctx, "csidriver", "TERM") }
