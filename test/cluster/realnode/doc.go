//go:build linux

// Package realnode gives a control plane real nodes on one Linux machine. Each node is a kubelet, a containerd and a
// kube-proxy in its own network, mount, PID and UTS namespaces. A bridge connects the nodes. Pods on it are real
// containers, with a real pod network, a real service network and real DNS, which can be broken for real.
//
// It needs root, and from Debian runc, containernetworking-plugins, iptables, conntrack and
// iproute2. Everything it makes carries the prefix knr or lives below its state folder, so
// that [Sweep] can remove it all, also after a crash.
//
// Layout of the network:
//
//	host          knr-host 10.250.0.1/24    etcd, API server, scheduler, controller manager
//	knr-fabric    a bridge in a namespace of its own, so that the host's FORWARD rules have no say
//	knr-<node>    eth0 10.250.0.<10+n>/24, pods 10.251.<n>.0/24 behind the bridge cni0
//	services      10.96.0.0/16, cluster DNS 10.96.0.10
//	gateway       10.250.0.254, which forwards nothing: there is no network outside
package realnode
