package resolver

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// DefaultClusterDomain is used where resolv.conf does not show the cluster's domain.
const DefaultClusterDomain = "cluster.local"

// labelForm is what servers accept in names: letters, digits, hyphens and the underscore of SRV names.
var labelForm = regexp.MustCompile(`^[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?$`)

// ValidateName reports what is wrong with a name to look up. The lengths are those of RFC 1035,
// section 2.3.4.
func ValidateName(name string) error {
	trimmed := strings.TrimSuffix(name, ".")
	if trimmed == "" {
		return errors.New("must not be empty")
	}
	if len(trimmed) > 253 {
		return errors.New("must be at most 253 characters")
	}
	for _, label := range strings.Split(trimmed, ".") {
		switch {
		case label == "":
			return errors.New("must not have an empty label (two dots in a row, or a dot at the start)")
		case len(label) > 63:
			return errors.New("must not have a label of more than 63 characters")
		case !labelForm.MatchString(label):
			return fmt.Errorf("label %q must be letters, digits, '-' and '_'", label)
		}
	}
	return nil
}

// ValidateHostPort reports what is wrong with host:port, where the host is a name or an IP address.
func ValidateHostPort(s string) error {
	host, _, err := splitHostPort(s)
	if err != nil {
		return err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	if err := ValidateName(host); err != nil {
		return fmt.Errorf("the host %w", err)
	}
	return nil
}

// ParseServer reads a DNS server's address: an IP address, or one with a port as in
// 10.0.0.10:53 or [fd00::10]:53. The port defaults to 53. A bracketed IPv4 address is
// accepted, for that is how some resolv.conf dialects attach a port.
func ParseServer(s string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil {
		return netip.AddrPortFrom(a.Unmap(), 53), nil
	}
	host, port, err := splitHostPort(s)
	if err != nil {
		return netip.AddrPort{}, err
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not an IP address", host)
	}
	return netip.AddrPortFrom(a.Unmap(), port), nil
}

// splitHostPort splits host:port and insists on a numeric port from 1 to 65535.
func splitHostPort(s string) (string, uint16, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" {
		return "", 0, errors.New("must be host:port, an IPv6 host in brackets")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("the port %q must be a number from 1 to 65535", port)
	}
	return host, uint16(n), nil
}
