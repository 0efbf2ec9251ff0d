package resolver

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"net/netip"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/input"
)

// DefaultHosts is where the kubelet puts localhost and a pod's hostAliases.
const DefaultHosts = "/etc/hosts"

// maxHostsBytes bounds a hosts file: some block advertisers with thousands of lines.
const maxHostsBytes = 1 << 20

// Hosts are the addresses of a hosts(5) file by name, in lower case and without a trailing dot.
type Hosts map[string][]netip.Addr

// LoadHosts reads a hosts file. One that is not there is empty.
func LoadHosts(path string) (Hosts, error) {
	data, err := input.ReadFile(path, maxHostsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseHosts(data), nil
}

// parseHosts passes over what it cannot read, as libc does.
func parseHosts(data []byte) Hosts {
	hosts := Hosts{}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		addr, err := netip.ParseAddr(fields[0])
		if err != nil {
			continue
		}
		for _, name := range fields[1:] {
			name = hostKey(name)
			hosts[name] = append(hosts[name], addr.Unmap())
		}
	}
	return hosts
}

func hostKey(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }
