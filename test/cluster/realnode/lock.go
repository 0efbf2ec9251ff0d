//go:build linux

package realnode

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// lockAddress is an abstract Unix socket: it exists on the machine as long as its owner lives,
// and needs no file that could be left behind.
const lockAddress = "@kube-node-ready-real-cluster"

// lock makes this process the machine's one owner of a cluster of real nodes.
func lock() (*net.UnixListener, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: lockAddress, Net: "unix"})
	if err == nil {
		return listener, nil
	}
	pid, perr := Owner()
	if perr != nil {
		return nil, fmt.Errorf("take the lock %s: %w", lockAddress, err)
	}
	return nil, fmt.Errorf("process %d has a cluster of real nodes on this machine already; there can be one: make cluster-down ends it", pid)
}

// Owner is the process that has a cluster of real nodes on this machine; an error means that
// there is none.
func Owner() (int, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: lockAddress, Net: "unix"})
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var perr error
	if err := raw.Control(func(fd uintptr) { peer, perr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if perr != nil {
		return 0, perr
	}
	return int(peer.Pid), nil
}
