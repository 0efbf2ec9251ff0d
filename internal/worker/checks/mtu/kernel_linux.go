package mtu

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// supported reports whether this operating system has what the check needs.
const supported = true

// forbidFragments sets the don't-fragment bit on what a socket sends (ip(7), IP_MTU_DISCOVER).
func forbidFragments(network, _ string, c syscall.RawConn) error {
	var failure error
	err := c.Control(func(fd uintptr) {
		if network == "tcp6" {
			failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
			return
		}
		failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	})
	if err != nil {
		return err
	}
	return failure
}

// inspect reads the kernel's account of a connection (tcp(7), TCP_INFO).
func inspect(conn *net.TCPConn) (state, error) {
	var info *unix.TCPInfo
	err := control(conn, func(fd int) (err error) {
		info, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		return err
	})
	if err != nil {
		return state{}, err
	}
	return state{
		mss: int(info.Snd_mss), pathMTU: int(info.Pmtu), acked: info.Bytes_acked, retransmitted: int(info.Total_retrans),
		closed: info.State == unix.BPF_TCP_CLOSE,
	}, nil
}

func control(conn *net.TCPConn, f func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	if err := raw.Control(func(fd uintptr) { failure = f(int(fd)) }); err != nil {
		return err
	}
	return failure
}
