// Package resolver asks DNS servers the way a program in a pod does, from the same
// resolv.conf with its search domains and ndots, but says which server failed and how.
package resolver

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/input"
)

// DefaultPath is where the kubelet puts a pod's resolver settings.
const DefaultPath = "/etc/resolv.conf"

const (
	// maxFileBytes bounds resolv.conf, far beyond what the kubelet writes.
	maxFileBytes = 64 << 10
	// maxServers is how many nameservers a resolver library reads (MAXNS in resolv.h of
	// glibc and musl); further ones are never asked by anyone.
	maxServers = 3
)

// Config is what a resolv.conf(5) says.
type Config struct {
	// Servers in their order, at most three.
	Servers []netip.AddrPort
	// Search domains, without a trailing dot.
	Search []string
	// Ndots is how many dots make a name be tried as it is before the search domains.
	Ndots int
	// Timeout of one query, and Attempts at a server. Defaults 5 seconds and 2.
	Timeout  time.Duration
	Attempts int
}

// Load reads a resolv.conf.
func Load(path string) (Config, error) {
	data, err := input.ReadFile(path, maxFileBytes)
	if err != nil {
		return Config{}, err
	}
	c, err := Parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Parse reads the contents of a resolv.conf. A nameserver may carry a port, as in
// [127.0.0.1]:5353, which libc does not know; a nameserver that is no IP address is an
// error, where libc would quietly pass over it.
func Parse(data []byte) (Config, error) {
	if len(data) > maxFileBytes {
		return Config{}, fmt.Errorf("%d bytes are too many, at most %d are read", len(data), maxFileBytes)
	}
	parsed, err := mdns.ClientConfigFromReader(bytes.NewReader(data))
	if err != nil {
		return Config{}, err
	}
	c := Config{
		Ndots:    parsed.Ndots,
		Timeout:  time.Duration(min(parsed.Timeout, 30)) * time.Second, // RES_MAXRETRANS of glibc
		Attempts: min(parsed.Attempts, 5),                              // RES_MAXRETRY of glibc
	}
	for _, s := range parsed.Servers {
		server, err := ParseServer(s)
		if err != nil {
			return Config{}, fmt.Errorf("nameserver %q is not an IP address", s)
		}
		if len(c.Servers) < maxServers && !slices.Contains(c.Servers, server) {
			c.Servers = append(c.Servers, server)
		}
	}
	for _, s := range parsed.Search {
		s = strings.TrimSuffix(s, ".")
		if s == "" || ValidateName(s+".") != nil {
			continue // "search ." means none; libc cannot append the others either
		}
		c.Search = append(c.Search, s)
	}
	return c, nil
}

// Names lists, in order, the absolute names that a look-up of name asks for.
func (c Config) Names(name string) []string {
	if strings.HasSuffix(name, ".") {
		return []string{name}
	}
	names := make([]string, 0, len(c.Search)+1)
	asIs := name + "."
	first := strings.Count(name, ".") >= c.Ndots
	if first {
		names = append(names, asIs)
	}
	for _, s := range c.Search {
		if n := name + "." + s + "."; len(n) <= 254 {
			names = append(names, n)
		}
	}
	if !first {
		names = append(names, asIs)
	}
	return names
}

// ClusterDomain is the domain that the kubelet wrote into the search list, as in
// default.svc.cluster.local svc.cluster.local cluster.local. A namespace may be called svc as well, so the entry that
// counts is the one beside that of a namespace in it.
func (c Config) ClusterDomain() string {
	var found []string
	for _, s := range c.Search {
		domain, isServices := strings.CutPrefix(s, "svc.")
		if !isServices {
			continue
		}
		found = append(found, domain)
		if slices.ContainsFunc(c.Search, func(of string) bool {
			namespace, inside := strings.CutSuffix(of, "."+s)
			return inside && !strings.Contains(namespace, ".")
		}) {
			return domain
		}
	}
	return append(found, DefaultClusterDomain)[0]
}
