package resolver

import (
	"strings"
	"testing"
)

// FuzzHosts: whatever a hosts file holds, every address that is read of it can be dialled.
func FuzzHosts(f *testing.F) {
	f.Add([]byte("127.0.0.1 localhost # a comment\n::1 LOCALHOST. ip6-localhost\nfe80::1%eth0 link"))
	f.Add([]byte("x y\n1.2.3.4\n::ffff:1.2.3.4 \xff ."))
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, addrs := range parseHosts(data) {
			if len(addrs) == 0 || strings.ToLower(name) != name {
				t.Errorf("%q: %v", name, addrs)
			}
			for _, a := range addrs {
				if !a.IsValid() || a.Is4In6() {
					t.Errorf("%q is %v", name, a)
				}
			}
		}
	})
}
