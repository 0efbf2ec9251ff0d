package tcp

import (
	"net"
	"net/netip"
	"testing"
)

func TestTheNodesFamilies(t *testing.T) {
	four := []net.Addr{cidr("127.0.0.1/8"), cidr("10.0.0.5/24"), cidr("::1/128"), cidr("fe80::1/64")}
	for address, want := range map[string]bool{"192.0.2.1": true, "127.0.0.1": true, "::1": true, "fe80::2": true, "2001:db8::1": false} {
		if got := hasFamily(four, netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: got %t", address, got)
		}
	}
	if !hasFamily([]net.Addr{cidr("2001:db8::5/64")}, netip.MustParseAddr("2001:db8::1")) {
		t.Error("IPv6 is there")
	}
	if hasFamily([]net.Addr{cidr("2001:db8::5/64"), cidr("127.0.0.1/8")}, netip.MustParseAddr("192.0.2.1")) {
		t.Error("IPv4 is not there")
	}
}

func cidr(s string) net.Addr {
	ip, network, err := net.ParseCIDR(s)
	if err != nil {
		panic(err)
	}
	return &net.IPNet{IP: ip, Mask: network.Mask}
}
