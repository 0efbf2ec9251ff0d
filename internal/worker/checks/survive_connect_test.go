package checks_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/tcp"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// destination is a host to connect to, or one to ask for a name, in the network namespace of inNamespace.
type destination struct {
	name string
	// host is a name with records, or an address, to connect to at port 443.
	host    string
	records []string
	// nameserver is asked for dual.example. in place of connecting.
	nameserver string
	// glibc and musl are what TestConnects sees.
	glibc, musl string
}

// namespace has a server at 10.96.0.7. At 10.96.0.8, nothing listens. Packets to 10.96.0.9 are lost. To 10.96.0.10, the
// packet filter lets nothing be sent: a program sees EPERM, as with a full connection table.
var namespace = []string{
	"ip link set lo up",
	"ip address add 10.96.0.7/32 dev lo", "ip address add 10.96.0.8/32 dev lo", "ip address add 10.96.0.9/32 dev lo",
	"ip address add 2001:db8::8/128 dev lo nodad",
	"iptables -A INPUT -d 10.96.0.9 -j DROP",
	"iptables -A OUTPUT -d 10.96.0.10 -j DROP", "ip address add 10.96.0.10/32 dev lo",
	"ip route add blackhole 203.0.113.1", "ip route add prohibit 203.0.113.2", "ip route add unreachable 203.0.113.3",
}

func destinations() []destination {
	const open, closed, lost, noRoute = "A 10.96.0.7", "A 10.96.0.8", "A 10.96.0.9", "AAAA 2001:db8:1::1"
	return []destination{
		{name: "all is well", host: "web.example", records: []string{open}, glibc: yes, musl: yes},
		{name: "nothing listens at one of two addresses", host: "one.example", records: []string{closed, open},
			glibc: yes, musl: yes},
		{name: "packets to one of two addresses are lost", host: "half.example", records: []string{lost, open},
			glibc: late, musl: late},
		{name: "nothing listens at both addresses", host: "both.example", records: []string{closed, "AAAA 2001:db8::8"},
			glibc: no, musl: no},
		{name: "nothing listens at the one, and no route leads to the other", host: "mixed.example",
			records: []string{closed, noRoute}, glibc: no, musl: no},
		{name: "nothing listens at the one, and packets to the other are lost", host: "worst.example",
			records: []string{closed, lost}, glibc: no, musl: no},
		{name: "packets are lost to the one, and no route leads to the other", host: "lost.example",
			records: []string{noRoute, lost}, glibc: no, musl: no},
		{name: "there is no route", host: "198.51.100.1", glibc: no, musl: no},
		{name: "a route of type unreachable, or a firewall", host: "203.0.113.3", glibc: no, musl: no},
		{name: "a route of type blackhole", host: "203.0.113.1", glibc: no, musl: no},
		{name: "a route of type prohibit", host: "203.0.113.2", glibc: no, musl: no},
		{name: "a zone without an interface", host: "fe80::1%eth9", glibc: no, musl: no},
		{name: "a zone without an interface, as a number", host: "fe80::1%9999", glibc: no, musl: no},
		{name: "a link-local address without a zone", host: "fe80::1", glibc: no, musl: no},
		{name: "a packet filter drops what is sent to the nameserver", nameserver: "10.96.0.10", glibc: no, musl: no},
		{name: "a nameserver's zone without an interface", nameserver: "fe80::1%eth9", glibc: no, musl: no},
		{name: "no route leads to the nameserver", nameserver: "198.51.100.1", glibc: no, musl: no},
	}
}

// startServers starts the server of names at 127.0.0.11, and the one to connect to.
func startServers(t *testing.T) {
	t.Helper()
	zone := map[string][]string{}
	for _, p := range destinations() {
		zone[p.host+"."] = p.records
	}
	dnstest.StartAt(t, "127.0.0.11", dnstest.Behaviour{Zone: zone, Port: 53})
	l, err := net.Listen("tcp", "10.96.0.7:443")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

func (p destination) asked() string {
	if p.nameserver != "" {
		return "dual.example. of " + p.nameserver
	}
	return strings.Join(append([]string{p.host}, p.records...), ", ")
}

func (p destination) resolvConf() string {
	if p.nameserver != "" {
		return "nameserver " + p.nameserver + "\n"
	}
	return "nameserver 127.0.0.11\n"
}

func (p destination) row(ctx context.Context) string {
	config, err := resolver.Parse([]byte(p.resolvConf()))
	if err != nil {
		return err.Error()
	}
	config.Timeout = time.Second
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	var settings checks.Settings = &tcp.Settings{Addresses: []string{net.JoinHostPort(p.host, "443")}}
	if p.nameserver != "" {
		settings = &dns.Settings{Name: "dual.example."}
	}
	f := settings.New(environment.Pod{Resolver: &resolver.Resolver{Config: config}})(ctx)
	return fmt.Sprintf("| %s | `%s` | %s | %s | %s\n", p.name, p.asked(), p.glibc, p.musl, columns(f))
}

// inNamespace runs a test again as a process in a network namespace of its own, and reports whether this is the one.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const inside = "CHECKS_TEST_NAMESPACE"
	if os.Getenv(inside) != "" {
		return true
	}
	missing.Root(t, "network namespaces")
	for _, program := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(program); err != nil {
			missing.Skip(t, program+", for network namespaces", "install iproute2 and iptables")
		}
	}
	name := fmt.Sprintf("knr-checks-%d", os.Getpid())
	command := func(args ...string) {
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
		switch {
		case err != nil && slices.Contains(args, "iptables"):
			missing.Skip(t, fmt.Sprintf("a packet filter (%s)", out), "load the kernel's nf_tables")
		case err != nil:
			t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	command("ip", "netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", name).Run() })
	for _, line := range namespace {
		command(append([]string{"ip", "netns", "exec", name}, strings.Fields(line)...)...)
	}
	args := []string{"netns", "exec", name, os.Args[0], "-test.v", "-test.run=^" + t.Name() + "$"}
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "update" || f.Name == "libc" {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	child := exec.CommandContext(t.Context(), "ip", args...)
	child.Env = append(os.Environ(), inside+"=1")
	out, err := child.CombinedOutput()
	if t.Logf("%s", out); err != nil {
		t.Errorf("%v", err)
	}
	return false
}

// TestWhatConnects compares the table of docs/reference/checks.md with what checks of type tcp and dns find.
func TestWhatConnects(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	startServers(t)
	var rows []func() string
	for _, p := range destinations() {
		rows = append(rows, func() string { return p.row(t.Context()) })
	}
	compareTable(t, "connect", "| situation | asked | glibc | musl | the check | message |\n|---|---|---|---|---|---|\n",
		rows)
}

// TestConnects asks the C libraries, by hand, as root. testdata/connect.c is built as DIR/connect-glibc and, by
// musl-gcc -static, as DIR/connect-musl; glibc and musl are those of TestLibc.
//
//	go test -run TestConnects -libc DIR
func TestConnects(t *testing.T) {
	if *libc == "" || !inNamespace(t) {
		return
	}
	startServers(t)
	for _, p := range destinations() {
		t.Run(p.name, func(t *testing.T) {
			file := t.TempDir() + "/resolv.conf"
			if err := os.WriteFile(file, []byte(p.resolvConf()), 0o600); err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]string{"glibc": p.glibc, "musl": p.musl} {
				command := fmt.Sprintf("mount --bind %s /etc/resolv.conf && exec %s/connect-%s %s 443", file, *libc, name, p.host)
				if p.nameserver != "" {
					command = fmt.Sprintf("mount --bind %s /etc/resolv.conf && exec %s/%s dual.example.", file, *libc, name)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				began := time.Now()
				out, err := exec.CommandContext(ctx, "unshare", "-m", "sh", "-c", command).CombinedOutput()
				cancel()
				took, got := time.Since(began), yes
				if _, failed := errors.AsType[*exec.ExitError](err); failed {
					got = no
				} else if err != nil {
					t.Fatal(err)
				} else if took > 2*time.Second {
					got = late
				}
				t.Logf("%s: %s after %.1f s: %s", name, got, took.Seconds(), strings.Join(strings.Fields(string(out)), " "))
				if got != want {
					t.Errorf("%s: got %s, want %q", name, got, want)
				}
			}
		})
	}
}
