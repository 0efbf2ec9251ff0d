//go:build linux

package realnode

import (
	"context"
	"fmt"
)

// The network's fixed names and addresses. They are the same in every run: two clusters at
// once on one machine would need two of everything, and nobody needs that.
const (
	// HostAddress is where the control plane listens, on the machine itself.
	HostAddress = "10.250.0.1"
	// gateway is the nodes' default gateway. It forwards nothing: whatever is for nobody on
	// this network, a ClusterIP that kube-proxy did not translate included, is lost there.
	gateway = "10.250.0.254"
	// ServiceCIDR is the range of ClusterIPs; its first address is the API server's Service.
	ServiceCIDR = "10.96.0.0/16"
	// PodCIDR covers every node's pods.
	PodCIDR = "10.251.0.0/16"
	// DNSAddress is the ClusterIP of the cluster's DNS Service.
	DNSAddress = "10.96.0.10"

	prefix    = "knr-"
	fabric    = prefix + "fabric"
	hostLink  = prefix + "host"
	hostPeer  = prefix + "hostp"
	bridge    = "fabric0"
	netnsPath = "/run/netns/"
)

// createFabric makes the bridge in its namespace and the machine's own port on it.
func createFabric(ctx context.Context) error {
	return runAll(ctx,
		"ip netns add "+fabric,
		"ip -n "+fabric+" link set lo up",
		"ip -n "+fabric+" link add "+bridge+" type bridge",
		"ip -n "+fabric+" link set "+bridge+" up",
		"ip -n "+fabric+" addr add "+gateway+"/24 dev "+bridge,
		"nsenter --net="+netnsPath+fabric+" sysctl -qw net.ipv4.ip_forward=0",
		"ip link add "+hostLink+" type veth peer name "+hostPeer+" netns "+fabric,
		"ip -n "+fabric+" link set "+hostPeer+" master "+bridge+" up",
		"ip addr add "+HostAddress+"/24 dev "+hostLink,
		"ip link set "+hostLink+" up",
	)
}

// attach makes a namespace with one port on the bridge, eth0, and the address given.
func attach(ctx context.Context, name, address string) error {
	ns, port := prefix+name, "v-"+name
	return runAll(ctx,
		"ip netns add "+ns,
		// A node that is still booting has no route to its own pods. It would send their packets back to the gateway, and
		// tell the sender to do so as well from then on (an ICMP redirect). The sender would follow that for minutes.
		"nsenter --net="+netnsPath+ns+" sysctl -qw net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0",
		"nsenter --net="+netnsPath+ns+" sysctl -qw net.ipv4.conf.all.accept_redirects=0 net.ipv4.conf.default.accept_redirects=0",
		"ip link add eth0 netns "+ns+" type veth peer name "+port+" netns "+fabric,
		"ip -n "+fabric+" link set "+port+" master "+bridge+" up",
		"ip -n "+ns+" link set lo up",
		"ip -n "+ns+" addr add "+address+"/24 dev eth0",
		"ip -n "+ns+" link set eth0 up",
		"ip -n "+ns+" route add default via "+gateway,
		// Forwarding is per namespace: the machine's own setting is not touched.
		"nsenter --net="+netnsPath+ns+" sysctl -qw net.ipv4.ip_forward=1",
	)
}

// detach removes what attach made; the veth pair goes with the namespace, at the latest when
// the kernel has collected it, so the bridge's end is deleted by name first.
func detach(ctx context.Context, name string) error {
	_, _ = run(ctx, "ip", "-n", fabric, "link", "del", "v-"+name)
	_, err := run(ctx, "ip", "netns", "del", prefix+name)
	return err
}

func nodeAddress(index int) string { return fmt.Sprintf("10.250.0.%d", 10+index) }
func podSubnet(index int) string   { return fmt.Sprintf("10.251.%d.0/24", index) }

// RouteServices lets this machine reach ClusterIPs, by way of a node's kube-proxy. The route
// goes with the cluster.
func (c *Cluster) RouteServices(ctx context.Context, n *Node) error {
	_, err := run(ctx, "ip", "route", "replace", ServiceCIDR, "via", n.Address, "dev", hostLink)
	return err
}
