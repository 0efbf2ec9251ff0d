// Package resolver queries DNS servers as a program in a pod does, with the search domains and ndots of its
// resolv.conf, and reports which server failed and how.
package resolver

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/input"
)

const (
	// DefaultPath is where the kubelet writes a pod's resolver settings.
	DefaultPath = "/etc/resolv.conf"
	// DefaultHosts is where the kubelet writes localhost and a pod's hostAliases.
	DefaultHosts = "/etc/hosts"
	// DefaultClusterDomain is used if resolv.conf does not show the cluster's domain.
	DefaultClusterDomain = "cluster.local"

	// maxFileBytes limits resolv.conf, far above what the kubelet writes.
	maxFileBytes = 64 << 10
	// maxHostsBytes limits a hosts file; one that blocks advertisers has thousands of lines.
	maxHostsBytes = 1 << 20
	// maxServers is how many nameservers glibc and musl use (MAXNS in resolv.h).
	maxServers = 3
)

// Config holds the settings of a resolv.conf(5).
type Config struct {
	// Servers in their order, at most three.
	Servers []netip.AddrPort
	// Search domains, without a trailing dot.
	Search []string
	// Ndots is the number of dots from which a name is tried as it is before the search domains.
	Ndots int
	// Timeout of one query, and Attempts at a server. Defaults 5 seconds and 2.
	Timeout  time.Duration
	Attempts int
	// Odd describes each nameserver line that resolvers skip.
	Odd []string
	// LongSearch describes a search line that musl ignores; empty if there is none.
	LongSearch string
	// UseTCP is true with the option use-vc: queries go over TCP alone.
	UseTCP bool
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

// Parse parses a resolv.conf. Like libc, it skips a nameserver that is no IP address, such as 10.0.0.1#53. Unlike for
// libc, a nameserver may have a port, as in [127.0.0.1]:5353.
func Parse(data []byte) (Config, error) {
	parsed, err := mdns.ClientConfigFromReader(bytes.NewReader(data))
	if err != nil {
		return Config{}, err
	}
	c := Config{
		Ndots:    parsed.Ndots,
		Timeout:  time.Duration(min(parsed.Timeout, 30)) * time.Second, // RES_MAXRETRANS of glibc
		Attempts: min(parsed.Attempts, 5),                              // RES_MAXRETRY of glibc
		UseTCP:   useVC(data),

		LongSearch: longSearch(data),
	}
	for _, s := range parsed.Servers {
		server, err := ParseServer(s)
		if err != nil {
			c.Odd = append(c.Odd, fmt.Sprintf("nameserver %q is skipped, because it is not an IP address", s))
			continue
		}
		if len(c.Servers) < maxServers && !slices.Contains(c.Servers, server) {
			c.Servers = append(c.Servers, server)
		}
	}
	for _, s := range parsed.Search {
		s = strings.TrimSuffix(s, ".")
		if s == "" || ValidateName(s+".") != nil {
			continue // "search ." means none; libc cannot append invalid ones either
		}
		c.Search = append(c.Search, s)
	}
	return c, nil
}

// useVC reports whether a resolv.conf has the option use-vc, by any of the names that glibc and Go know.
func useVC(data []byte) bool {
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) > 0 && fields[0] == "options" && slices.ContainsFunc(fields[1:], func(option string) bool {
			return slices.Contains([]string{"use-vc", "usevc", "tcp"}, option)
		}) {
			return true
		}
	}
	return false
}

// maxMuslLine is how many bytes of a line, with its end, musl reads; it ignores longer lines (resolvconf.c).
const maxMuslLine = 255

// longSearch describes a search line of a resolv.conf that musl ignores; empty if there is none.
func longSearch(data []byte) string {
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		isSearch := len(fields) > 0 && (fields[0] == "search" || fields[0] == "domain")
		if isSearch && len(line) > maxMuslLine {
			return fmt.Sprintf("the %s line has %d characters, and musl (Alpine) ignores lines of more than %d",
				fields[0], len(strings.TrimSuffix(line, "\n")), maxMuslLine-1)
		}
	}
	return ""
}

// Protocol of the queries of a program in the pod.
func (c Config) Protocol() string {
	if c.UseTCP {
		return TCP
	}
	return UDP
}

// Names returns, in order, the absolute names that a lookup of name queries.
func (c Config) Names(name string) []string {
	search := mdns.ClientConfig{Search: c.Search, Ndots: c.Ndots}
	return slices.DeleteFunc(search.NameList(name), func(n string) bool { return len(n) > 254 && n != mdns.Fqdn(name) })
}

// ClusterDomain is the domain in the kubelet's search list, such as default.svc.cluster.local svc.cluster.local
// cluster.local. A namespace may be named svc too, so it prefers the entry that follows from another one with a
// namespace.
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

// LoadHosts reads the addresses of a hosts(5) file by name, in lower case and without a trailing dot. A missing file is
// empty.
func LoadHosts(path string) (map[string][]netip.Addr, error) {
	data, err := input.ReadFile(path, maxHostsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseHosts(data), nil
}

// parseHosts ignores invalid lines, as libc does.
func parseHosts(data []byte) map[string][]netip.Addr {
	hosts := map[string][]netip.Addr{}
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

// labelForm has the characters that servers accept in names: letters, digits, hyphens and the underscore of SRV names.
var labelForm = regexp.MustCompile(`^[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?$`)

// ValidateName validates a name to look up. The lengths are those of RFC 1035, section 2.3.4.
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

// ValidateHostPort validates host:port, where the host is a name or an IP address.
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

// ParseServer parses a DNS server's address: an IP address with an optional port, as in 10.0.0.10:53 or [fd00::10]:53.
// The port defaults to 53. An IPv4 address may have brackets, as in some dialects of resolv.conf.
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

// splitHostPort splits host:port, whose port must be a number from 1 to 65535.
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
