package mtu

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/neterror"
)

// supported reports whether the check works on this operating system.
const supported = true

// forbidFragments sets the don't-fragment bit of a socket (ip(7), IP_MTU_DISCOVER). Its error is a *neterror.Error.
func forbidFragments(network, _ string, c syscall.RawConn) error {
	var failure error
	err := c.Control(func(fd uintptr) {
		if network == "tcp6" {
			failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
			return
		}
		failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	})
	if err := errors.Join(err, failure); err != nil {
		text := "cannot be examined: the kernel does not set the don't-fragment bit: " + err.Error()
		return &neterror.Error{Code: check.ReasonUnknown, Text: text}
	}
	return nil
}

// inspect reads a connection's TCP_INFO (tcp(7)).
func inspect(conn *net.TCPConn) (state, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return state{}, err
	}
	var info *unix.TCPInfo
	var failure error
	err = raw.Control(func(fd uintptr) {
		info, failure = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err := errors.Join(err, failure); err != nil {
		return state{}, err
	}
	return state{
		mss: int(info.Snd_mss), pathMTU: int(info.Pmtu), acked: info.Bytes_acked,
		retransmitted: int(info.Total_retrans), closed: info.State == unix.BPF_TCP_CLOSE,
	}, nil
}
