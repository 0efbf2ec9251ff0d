package check

import (
	"fmt"
	"net"
	"strconv"
)

// splitHostPort splits host:port and insists on a numeric port from 1 to 65535.
func splitHostPort(s string) (string, uint16, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" {
		return "", 0, fmt.Errorf("must be host:port, an IPv6 host in brackets")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("the port %q must be a number from 1 to 65535", port)
	}
	return host, uint16(n), nil
}
