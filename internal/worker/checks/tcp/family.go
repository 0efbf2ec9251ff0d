package tcp

import (
	"net"
	"net/netip"
)

// nodeHasFamily reports whether this node has an address from which the given one could be
// reached, whatever the routes.
func nodeHasFamily(address string) bool {
	target, err := netip.ParseAddrPort(address)
	own, ownErr := net.InterfaceAddrs()
	return err != nil || ownErr != nil || hasFamily(own, target.Addr())
}

// hasFamily: a loopback or link-local address leads to its likes only.
func hasFamily(own []net.Addr, target netip.Addr) bool {
	for _, a := range own {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		local := prefix.Addr().Unmap()
		if familyOf(local) == familyOf(target) && (global(local) || !global(target)) {
			return true
		}
	}
	return false
}

func global(a netip.Addr) bool { return !a.IsLoopback() && !a.IsLinkLocalUnicast() }
