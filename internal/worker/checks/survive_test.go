package checks_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/dns"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

var (
	update = flag.Bool("update", false, "write the table of docs/reference/checks.md in place of comparing it")
	libc   = flag.String("libc", "", "the directory of the programs glibc and musl, for TestLibc")
)

// What the resolver of a C library does.
const (
	yes  = "yes"
	late = "late" // an address after two seconds or more
	no   = "no"
)

// situation is what DNS servers do, and whether a program finds an address nevertheless.
type situation struct {
	name string
	// servers of resolv.conf.
	servers []dnstest.Behaviour
	// resolvConf are lines in addition to the servers, the kubelet's search list and ndots. In place of the search list
	// where it has one. "nameserver" without an address is that of the first server.
	resolvConf string
	// ask is the name to look up. Default dual.example.
	ask string
	// glibc and musl are what TestLibc sees.
	glibc, musl string
}

const (
	kubeletSearch = "search default.svc.cluster.local svc.cluster.local cluster.local"
	// ofSearch is the first name of the search list.
	ofSearch = "dual.example.default.svc.cluster.local."
	absolute = "dual.example."
)

var names = map[string][]string{
	absolute:                         {"A 192.0.2.1", "AAAA 2001:db8::1"},
	"web.default.svc.cluster.local.": {"A 10.96.0.7"},
}

// nothing is a server that is not there.
var nothing = dnstest.Behaviour{Rcode: -1}

func one(b dnstest.Behaviour) []dnstest.Behaviour {
	if b.Zone == nil {
		b.Zone = names
	}
	return []dnstest.Behaviour{b}
}

func rcode(name string, rcode int) []dnstest.Behaviour {
	return one(dnstest.Behaviour{Rcodes: map[string]int{name: rcode}})
}

func family(qtype string, rcode int) []dnstest.Behaviour {
	return one(dnstest.Behaviour{Types: map[string]int{qtype: rcode}})
}

func situations() []situation {
	with := func(name string, records ...string) map[string][]string {
		return map[string][]string{absolute: names[absolute], name: records}
	}
	good := one(dnstest.Behaviour{})[0]
	return []situation{
		{name: "all is well", servers: one(dnstest.Behaviour{}), glibc: yes, musl: yes},
		{name: "a search domain: SERVFAIL", servers: rcode(ofSearch, mdns.RcodeServerFailure), glibc: yes, musl: no},
		{name: "a search domain: REFUSED", servers: rcode(ofSearch, mdns.RcodeRefused), glibc: yes, musl: no},
		{name: "a search domain: NOTIMP", servers: rcode(ofSearch, mdns.RcodeNotImplemented), glibc: yes, musl: no},
		{name: "a search domain: no answer", servers: rcode(ofSearch, -1), glibc: late, musl: no},
		{name: "a search domain: no records", servers: one(dnstest.Behaviour{Zone: with(ofSearch, "TXT here")}),
			glibc: yes, musl: no},
		{name: "a search domain: a wildcard record", servers: one(dnstest.Behaviour{Zone: with(ofSearch, "A 192.0.2.9")}),
			glibc: yes, musl: yes},
		{name: "a search line of 300 characters", servers: one(dnstest.Behaviour{}), ask: "web",
			resolvConf: "search default.svc.cluster.local " + strings.Repeat(" x.example", 27), glibc: yes, musl: no},
		{name: "AAAA: NXDOMAIN, beside A", servers: family("AAAA", mdns.RcodeNameError),
			ask: absolute, glibc: yes, musl: no},
		{name: "AAAA: SERVFAIL, beside A", servers: family("AAAA", mdns.RcodeServerFailure),
			ask: absolute, glibc: yes, musl: no},
		{name: "AAAA: no answer, beside A", servers: family("AAAA", -1), ask: absolute, glibc: late, musl: no},
		{name: "A: NXDOMAIN, beside AAAA", servers: family("A", mdns.RcodeNameError),
			ask: absolute, glibc: yes, musl: no},
		{name: "A: SERVFAIL, beside AAAA", servers: family("A", mdns.RcodeServerFailure),
			ask: absolute, glibc: yes, musl: no},
		{name: "AAAA: no answer, and no A", servers: one(dnstest.Behaviour{Zone: with("text.example.", "TXT here"),
			Types: map[string]int{"AAAA": -1}}), ask: "text.example.", glibc: no, musl: no},
		{name: "EDNS0: FORMERR", servers: one(dnstest.Behaviour{EDNS: dnstest.FormatError}),
			ask: absolute, glibc: yes, musl: yes},
		{name: "EDNS0: no answer", servers: one(dnstest.Behaviour{EDNS: dnstest.Drop}),
			ask: absolute, glibc: yes, musl: yes},
		{name: "a truncated answer", servers: one(dnstest.Behaviour{TruncateUDP: true}),
			ask: absolute, glibc: yes, musl: no},
		{name: "a truncated answer, and no TCP", servers: one(dnstest.Behaviour{TruncateUDP: true, NoTCP: true}),
			ask: absolute, glibc: no, musl: no},
		{name: "an answer that is cut off after a record, and not marked", servers: one(dnstest.Behaviour{CutUDP: 50,
			Zone: with("three.example.", "A 192.0.2.1", "A 192.0.2.2", "A 192.0.2.3")}), ask: "three.example.",
			glibc: no, musl: no},
		{name: "an answer that is cut off in its only record, and not marked", servers: one(dnstest.Behaviour{CutUDP: 35}),
			ask: absolute, glibc: no, musl: no},
		{name: "the first query is lost", servers: one(dnstest.Behaviour{DropFirst: 1}),
			ask: absolute, glibc: late, musl: late},
		{name: "no answer", servers: one(dnstest.Behaviour{DropUDP: true}), ask: absolute, glibc: no, musl: no},
		{name: "an answer from another address", servers: one(dnstest.Behaviour{From: "127.0.0.17"}),
			ask: absolute, glibc: no, musl: no},
		{name: "records of another name", servers: one(dnstest.Behaviour{OtherName: true}),
			ask: absolute, glibc: no, musl: yes},
		{name: "a CNAME that leads nowhere", servers: one(dnstest.Behaviour{
			Zone: with("alias.example.", "CNAME gone.example.")}), ask: "alias.example.", glibc: no, musl: no},
		{name: "another question", servers: one(dnstest.Behaviour{OtherQuestion: true}),
			ask: absolute, glibc: no, musl: yes},
		{name: "a record without data", servers: one(dnstest.Behaviour{NoData: true}),
			ask: absolute, glibc: no, musl: no},
		{name: "NXDOMAIN", servers: rcode(absolute, mdns.RcodeNameError), ask: absolute, glibc: no, musl: no},
		{name: "SERVFAIL", servers: rcode(absolute, mdns.RcodeServerFailure), ask: absolute, glibc: no, musl: no},
		{name: "REFUSED", servers: rcode(absolute, mdns.RcodeRefused), ask: absolute, glibc: no, musl: no},
		{name: "nothing listens", servers: []dnstest.Behaviour{nothing}, ask: absolute, glibc: no, musl: no},
		{name: "nothing listens at the first of two servers", servers: []dnstest.Behaviour{nothing, good},
			ask: absolute, glibc: yes, musl: yes},
		{name: "no answer of the first of two servers", ask: absolute,
			servers: []dnstest.Behaviour{{DropUDP: true}, good}, glibc: late, musl: yes},
		{name: "the only nameserver as `10.96.0.11#53`", servers: one(dnstest.Behaviour{}), ask: absolute,
			resolvConf: "nameserver #53", glibc: no, musl: no},
		{name: "a nameserver that is a name, beside another", servers: one(dnstest.Behaviour{}), ask: absolute,
			resolvConf: "nameserver dns.example", glibc: yes, musl: yes},
		{name: "`use-vc`, and UDP is dropped", servers: one(dnstest.Behaviour{DropUDP: true}), ask: absolute,
			resolvConf: "options use-vc", glibc: yes, musl: no},
	}
}

// start runs the servers at 127.0.0.11 and up, and returns their resolv.conf.
func (s situation) start(t *testing.T, port uint16) string {
	t.Helper()
	var text string
	for i, b := range s.servers {
		ip := fmt.Sprintf("127.0.0.%d", 11+i)
		address := netip.AddrPortFrom(netip.MustParseAddr(ip), port)
		if b.Rcode < 0 {
			if port == 0 {
				address = netip.AddrPortFrom(address.Addr(), 1) // where nothing listens
			}
		} else {
			b.Port = port
			address = dnstest.StartAt(t, ip, b)
		}
		server := "[" + address.Addr().String() + "]:" + fmt.Sprint(address.Port())
		if port != 0 {
			server = address.Addr().String()
		}
		if i == 0 && strings.Contains(s.resolvConf, "nameserver #") {
			text += "nameserver " + server + strings.TrimPrefix(s.resolvConf, "nameserver ") + "\n"
			continue
		}
		text += "nameserver " + server + "\n"
	}
	if !strings.Contains(s.resolvConf, "search ") {
		text += kubeletSearch + "\n"
	}
	if !strings.Contains(s.resolvConf, "nameserver #") {
		text += s.resolvConf + "\n"
	}
	return text + "options ndots:5\n"
}

func (s situation) asked() string {
	if s.ask == "" {
		return "dual.example"
	}
	return s.ask
}

// changing are the parts of a message that differ from run to run.
var changing = regexp.MustCompile(`\b[0-9.]+[mµ]?s\b|\b20\d\d-[-0-9T:]+Z`)

// row is the situation's row of the table, with a resolv.conf of start.
func (s situation) row(ctx context.Context, resolvConf string) string {
	config, err := resolver.Parse([]byte(resolvConf))
	if err != nil {
		return err.Error()
	}
	config.Timeout = 2 * time.Second // two of them are longer than the wait for the other family
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	settings := &dns.Settings{Name: s.asked()}
	f := settings.New(environment.Pod{Resolver: &resolver.Resolver{Config: config}})(ctx)
	f.Message = regexp.MustCompile(`\[?127\.0\.0\.1(\d)\]?:\d+`).ReplaceAllString(f.Message, "10.96.0.1$1:53")
	return fmt.Sprintf("| %s | `%s` | %s | %s | %s\n", s.name, s.asked(), s.glibc, s.musl, columns(f))
}

// columns are the last columns of a table: the outcome of the check, and its message.
func columns(f check.Finding) string {
	outcome := map[check.Outcome]string{check.Passed: "passes", check.Warned: "warns", check.Failed: "fails"}[f.Outcome]
	if f.Reason != check.NoReason {
		outcome += ": `" + f.Reason.String() + "`"
	}
	return outcome + " | " + changing.ReplaceAllString(f.Message, "…") + " |"
}

// TestWhatPodsSurvive compares the table of docs/reference/checks.md with what a check of type dns finds.
func TestWhatPodsSurvive(t *testing.T) {
	all := situations()
	rows := make([]func() string, len(all))
	for i, s := range all {
		rows[i] = func() string { return s.row(t.Context(), s.start(t, 0)) }
	}
	compareTable(t, "survive", "| situation | name | glibc | musl | the check | message |\n"+
		"|---|---|---|---|---|---|\n", rows)
}

// compareTable compares a table of docs/reference/checks.md, between comments of its name, with a head and rows that
// are made at the same time. With -update, it writes the table.
func compareTable(t *testing.T, name, head string, makers []func() string) {
	t.Helper()
	const page = "../../../docs/reference/checks.md"
	begin, end := "<!-- "+name+": begin -->\n", "<!-- "+name+": end -->\n"
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), begin)
	have, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		t.Fatalf("%s has no table %s", page, name)
	}
	rows := make([]string, len(makers))
	var running sync.WaitGroup
	for i, row := range makers {
		running.Go(func() { rows[i] = row() })
	}
	running.Wait()
	for i, row := range makers {
		for range 2 { // a busy machine loses packets
			if !*update && !strings.Contains(have, rows[i]) {
				rows[i] = row()
			}
		}
		if !*update && !strings.Contains(have, rows[i]) {
			t.Errorf("%s has not the row, run the test with -update:\n%s", page, rows[i])
		}
	}
	want := head + strings.Join(rows, "")
	switch {
	case t.Failed() || have == want:
	case !*update:
		t.Errorf("%s has other rows than the test, run the test with -update", page)
	default:
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLibc asks the C libraries, by hand: as root, in namespaces of its own, with /etc/resolv.conf a mount of a file
// that may be written. testdata/getaddrinfo.c is built as glibc and, by musl-gcc -static, as musl.
//
//	unshare -n -m sh -c 'ip link set lo up; mount --bind resolv.conf /etc/resolv.conf; go test -run TestLibc -libc DIR'
func TestLibc(t *testing.T) {
	if *libc == "" {
		return
	}
	for _, s := range situations() {
		t.Run(s.name, func(t *testing.T) {
			for name, want := range map[string]string{"glibc": s.glibc, "musl": s.musl} {
				t.Run(name, func(t *testing.T) {
					if err := os.WriteFile("/etc/resolv.conf", []byte(s.start(t, 53)), 0o600); err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					began := time.Now()
					out, err := exec.CommandContext(ctx, *libc+"/"+name, s.asked()).CombinedOutput()
					took, got := time.Since(began), yes
					if _, failed := errors.AsType[*exec.ExitError](err); failed {
						got = no
					} else if err != nil {
						t.Fatal(err)
					} else if took > 2*time.Second {
						got = late
					}
					t.Logf("%s after %.1f s: %s", got, took.Seconds(), strings.Join(strings.Fields(string(out)), " "))
					if got != want {
						t.Errorf("got %s, want %q", got, want)
					}
				})
			}
		})
	}
}
