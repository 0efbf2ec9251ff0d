//go:build linux

package realnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// Fault is a fault in one node's network, made with the kernel's own tools in its namespace.
type Fault struct {
	recover []func(context.Context) error
}

// Recover takes the fault away. It may be called more than once.
func (f *Fault) Recover(ctx context.Context) error {
	var errs []error
	for i := len(f.recover) - 1; i >= 0; i-- {
		errs = append(errs, f.recover[i](ctx))
	}
	f.recover = nil
	return errors.Join(errs...)
}

// rule adds an iptables rule in front of a chain of the node, and its removal to the fault.
func (f *Fault) rule(ctx context.Context, n *Node, table, chain, rule string) error {
	args := strings.Fields(rule)
	if _, err := n.Run(ctx, "iptables", append([]string{"-w", "-t", table, "-I", chain}, args...)...); err != nil {
		return err
	}
	f.recover = append(f.recover, func(ctx context.Context) error {
		_, err := n.Run(ctx, "iptables", append([]string{"-w", "-t", table, "-D", chain}, args...)...)
		return err
	})
	return nil
}

// rules makes a fault of iptables rules, each given as "table chain rule...".
func rules(ctx context.Context, n *Node, lines ...string) (*Fault, error) {
	f := &Fault{}
	for _, line := range lines {
		table, rest, _ := strings.Cut(line, " ")
		chain, rule, _ := strings.Cut(rest, " ")
		if err := f.rule(ctx, n, table, chain, rule); err != nil {
			return nil, errors.Join(err, f.Recover(ctx))
		}
	}
	return f, nil
}

// StopShim stops the process that containerd asks to end a container, and that reports its end
// (containerd-shim-runc-v2). The container runs until it ends by itself, and a client that wants to end it waits. The
// kubelet and containerd keep working. It takes the container's ID.
func (n *Node) StopShim(ctx context.Context, container string) (*Fault, error) {
	tasks, err := n.ctr(ctx, "tasks", "ls")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(tasks) { // TASK PID STATUS, the PID as the node sees it
		columns := strings.Fields(line)
		if len(columns) < 2 || columns[0] != container {
			continue
		}
		shim, err := n.Run(ctx, "sed", "-n", `s/^PPid:\t//p`, "/proc/"+columns[1]+"/status")
		if err != nil {
			return nil, err
		}
		shim = strings.TrimSpace(shim)
		if shim == "" || shim == "0" || shim == "1" {
			return nil, fmt.Errorf("container %s: its process %s has no shim but %q", container, columns[1], shim)
		}
		if _, err := n.Run(ctx, "kill", "-s", "STOP", shim); err != nil {
			return nil, err
		}
		return &Fault{recover: []func(context.Context) error{func(ctx context.Context) error {
			_, err := n.Run(ctx, "kill", "-s", "CONT", shim)
			return err
		}}}, nil
	}
	return nil, fmt.Errorf("container %s does not run:\n%s", container, tasks)
}

// DropDNS drops what the node's pods send to port 53, over UDP and TCP. The rules are in the
// first table that a packet meets, since a later one sees the port of a translated address.
func (n *Node) DropDNS(ctx context.Context) (*Fault, error) {
	return rules(ctx, n,
		"raw PREROUTING -s "+n.PodSubnet+" -p udp --dport 53 -j DROP",
		"raw PREROUTING -s "+n.PodSubnet+" -p tcp --dport 53 -j DROP")
}

// DropDNSTo drops what reaches port 53 of one of the node's own pods, from other pods and
// other nodes. The kubelet's probes of other ports go on, so the pod stays a ready endpoint.
func (n *Node) DropDNSTo(ctx context.Context, podIP string) (*Fault, error) {
	return rules(ctx, n,
		"filter FORWARD -d "+podIP+" -p udp --dport 53 -j DROP",
		"filter FORWARD -d "+podIP+" -p tcp --dport 53 -j DROP")
}

// LoseServices ends kube-proxy and takes away what it programmed: ClusterIPs lead nowhere, as
// on a node whose kube-proxy has not run yet. Addresses of pods and of the host still work.
func (n *Node) LoseServices(ctx context.Context) (*Fault, error) {
	if err := n.StopKubeProxy(ctx); err != nil {
		return nil, err
	}
	f := &Fault{recover: []func(context.Context) error{func(context.Context) error { return n.StartKubeProxy() }}}
	if _, err := n.Run(ctx, "iptables", "-w", "-t", "nat", "-F", "KUBE-SERVICES"); err != nil {
		return nil, errors.Join(err, f.Recover(ctx))
	}
	// Flows that are translated already would live on.
	if _, err := n.Run(ctx, "conntrack", "-F"); err != nil {
		return nil, errors.Join(err, f.Recover(ctx))
	}
	return f, nil
}

// Impair loses packets that the node's pods send, each with the given probability (0 to 1), and
// delays the others.
func (n *Node) Impair(ctx context.Context, loss float64, delay time.Duration) (*Fault, error) {
	f := &Fault{}
	path := n.cluster.built("netdelay")
	log, err := os.Create(filepath.Join(n.Dir, "log", "netdelay.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	p, err := n.cluster.ControlPlane.Processes().Start(process.Spec{
		Path: "/usr/bin/nsenter", Args: []string{"--net=" + netnsPath + prefix + n.Name, path, "-queue", "1", "-delay", delay.String()},
		Stdout: log, Stderr: log,
	})
	if err != nil {
		return nil, err
	}
	f.recover = append(f.recover, func(context.Context) error {
		p.Signal(syscall.SIGKILL)
		<-p.Done()
		return nil
	})
	err = poll(ctx, 5*time.Second, func() error {
		text, err := os.ReadFile(log.Name())
		if err == nil && !strings.Contains(string(text), "is late by") {
			err = fmt.Errorf("the delay line does not run: %s", text)
		}
		return err
	})
	for _, rule := range []string{
		"-s " + n.PodSubnet + " -j NFQUEUE --queue-num 1",
		fmt.Sprintf("-s %s -m statistic --mode random --probability %.2f -j DROP", n.PodSubnet, loss),
	} {
		if err == nil {
			err = f.rule(ctx, n, "mangle", "FORWARD", rule)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Recover(ctx))
	}
	return f, nil
}

// CutMTU silently drops what the node's pods send in packets longer than mtu bytes, as a
// tunnel does whose overhead nobody subtracted, behind a firewall that drops ICMP.
func (n *Node) CutMTU(ctx context.Context, mtu int) (*Fault, error) {
	return rules(ctx, n, fmt.Sprintf("mangle FORWARD -s %s -m length --length %d:65535 -j DROP", n.PodSubnet, mtu+1))
}

// Redirect sends the node's pods' connections to one address and port somewhere else.
func (n *Node) Redirect(ctx context.Context, ip, port, to string) (*Fault, error) {
	return rules(ctx, n, fmt.Sprintf("nat PREROUTING -s %s -d %s -p tcp --dport %s -j DNAT --to-destination %s", n.PodSubnet, ip, port, to))
}
