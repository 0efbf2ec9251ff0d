//go:build linux

package realnode

// The images that every cluster of real nodes has. None is in a registry: they are packed from
// built programs and imported on each node, so their pull policy must be IfNotPresent or Never.
const (
	// PauseImage is the sandbox of every pod, and a container that only waits.
	PauseImage = "kube-node-ready.test/pause:1"
	// CoreDNSImage serves the cluster's DNS.
	CoreDNSImage = "kube-node-ready.test/coredns:1"
)
