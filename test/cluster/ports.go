package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
)

// The range that FreePorts picks from lies below the ports that systems give to outgoing
// connections (32768 and up on Linux, 49152 and up by RFC 6335): such a connection could take
// a port between its choice and its use.
const (
	firstPort = 20000
	lastPort  = 32000
)

// FreePorts returns so many different TCP ports that nothing listens on, neither on the
// address nor on any other of this machine.
func FreePorts(address string, n int) ([]int, error) {
	var ports []int
	var last error
	for range 100 * n {
		port := firstPort + rand.IntN(lastPort-firstPort) //nolint:gosec // no secret
		if slices.Contains(ports, port) {
			continue
		}
		if last = bindable(address, port); last != nil {
			continue
		}
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("find a free port on %s: %w", address, last)
}

// bindable tries a port on the address and on all addresses.
func bindable(address string, port int) error {
	for _, host := range []string{address, ""} {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		_ = listener.Close()
	}
	return nil
}
