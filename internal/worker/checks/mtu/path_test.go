//go:build linux

package mtu_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/mtu"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/environment"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/resolver"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/retry"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

// TestPaths sends through network namespaces whose paths really have a small MTU. Making
// them takes root and iproute2; without, the loopback tests have to do.
func TestPaths(t *testing.T) {
	if settings := os.Getenv(envSettings); settings != "" {
		var s mtu.Settings
		if err := json.Unmarshal([]byte(settings), &s); err != nil {
			t.Fatal(err)
		}
		f := run(&s, "", 1500*time.Millisecond)
		if err := os.WriteFile(os.Getenv(envFinding), []byte(f.Reason.String()+"\n"+f.Message), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	missing.Root(t, "network namespaces")
	if _, err := exec.LookPath("ip"); err != nil {
		missing.Skip(t, "ip(8), for network namespaces", "install iproute2")
	}
	for _, c := range []struct {
		name     string
		path     func(t *testing.T) (client, server string)
		settings mtu.Settings
		reason   check.Reason
		says     string
	}{
		{"a good path", goodPath, mtu.Settings{}, check.NoReason, "1448 bytes reached 10.9.2.2:80 in one segment"},
		{"an ICMP message tells of a small MTU", routedPath, mtu.Settings{PayloadBytes: new(int32(1448))}, check.ReasonPathMTUTooSmall, "with a path MTU of 1300"},
		{"a router that would rather fragment", fragmentingPath, mtu.Settings{PayloadBytes: new(int32(1448))}, check.ReasonPathMTUTooSmall, "1448 bytes do not fit one segment"},
		{"small packets pass there", routedPath, mtu.Settings{PayloadBytes: new(int32(1200))}, check.NoReason, "1200 bytes reached"},
		{"large packets vanish", blackHolePath, mtu.Settings{}, check.ReasonPathMTUBlackHole, "packets of this size are lost (path MTU of the kernel: 1500)"},
		{"small packets pass there as well", blackHolePath, mtu.Settings{PayloadBytes: new(int32(1200))}, check.NoReason, "1200 bytes reached"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, server := c.path(t)
			serveIn(t, server)
			c.settings.Address = "10.9.2.2:80"
			reason, message := runIn(t, client, c.settings)
			if reason != c.reason.String() || !strings.Contains(message, c.says) {
				t.Errorf("got %q: %q, want %q with %q", reason, message, c.reason, c.says)
			}
		})
	}
}

// In a process that runs the check for TestPaths: the settings as JSON, and the file that receives the finding.
const (
	envSettings = "MTU_TEST_SETTINGS"
	envFinding  = "MTU_TEST_FINDING"
)

// runIn runs the check in a process of its own, because it connects from several threads and a thread that is moved to
// a network namespace moves no other.
func runIn(t *testing.T, namespace string, settings mtu.Settings) (reason, message string) {
	t.Helper()
	text, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	finding := t.TempDir() + "/finding"
	child := exec.CommandContext(t.Context(), "ip", "netns", "exec", namespace, os.Args[0], "-test.run=^TestPaths$")
	child.Env = append(os.Environ(), envSettings+"="+string(text), envFinding+"="+finding)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	found, err := os.ReadFile(finding)
	if err != nil {
		t.Fatal(err)
	}
	reason, message, _ = strings.Cut(string(found), "\n")
	return reason, message
}

// A connection that gets no answer is replaced by a new one. A connection that began before the node's service rules
// were in place reaches nothing, however often the kernel retransmits.
func TestUnansweredConnectionsAreTriedAgain(t *testing.T) {
	t.Parallel()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", bound.(*unix.SockaddrInet4).Port)
	for full := false; !full; { // nobody accepts: the kernel answers until its queue is full
		c, err := net.DialTimeout("tcp", address, 300*time.Millisecond)
		if full = err != nil; !full {
			defer func() { _ = c.Close() }()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*retry.Lost+time.Second)
	defer cancel()
	ctx, record := retry.WithRecord(ctx)
	f := record.Describe((&mtu.Settings{Address: address}).New(environment.Pod{Resolver: &resolver.Resolver{}})(ctx))
	// A third is begun within the last second, and ends with the context: whether it counts is a matter of milliseconds.
	if f.Reason != check.ReasonTimeout || !strings.Contains(f.Message, "asked 2 times") && !strings.Contains(f.Message, "asked 3 times") {
		t.Errorf("got %q: %q", f.Reason, f.Message)
	}
}

// goodPath is client — server over one link of ordinary frames.
func goodPath(t *testing.T) (client, server string) {
	client, server = namespace(t, "c"), namespace(t, "s")
	link(t, client, "10.9.2.1/24", 1500, server, "10.9.2.2/24", 1500)
	return client, server
}

// blackHolePath is a link whose far end takes frames of 1300 bytes only, and drops larger ones
// without a word, although the server offers to receive full segments.
func blackHolePath(t *testing.T) (client, server string) {
	client, server = namespace(t, "c"), namespace(t, "s")
	link(t, client, "10.9.2.1/24", 1500, server, "10.9.2.2/24", 1300)
	ip(t, server, "route", "change", "10.9.2.0/24", "dev", "in", "src", "10.9.2.2", "advmss", "1460")
	return client, server
}

// routedPath is client — router — server, with a link of 1300 bytes behind the router, which
// answers packets that may not be fragmented as RFC 1191 says.
func routedPath(t *testing.T) (client, server string) {
	client, router, server := namespace(t, "c"), namespace(t, "r"), namespace(t, "s")
	link(t, client, "10.9.1.1/24", 1500, router, "10.9.1.2/24", 1500)
	link(t, router, "10.9.2.1/24", 1300, server, "10.9.2.2/24", 1500)
	ip(t, client, "route", "add", "default", "via", "10.9.1.2")
	ip(t, server, "route", "add", "default", "via", "10.9.2.1")
	in(t, router, func() {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600); err != nil {
			t.Error(err)
		}
	})
	return client, server
}

// fragmentingPath is a routedPath whose client lets its packets be fragmented by default.
func fragmentingPath(t *testing.T) (client, server string) {
	client, server = routedPath(t)
	in(t, client, func() {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_no_pmtu_disc", []byte("1"), 0o600); err != nil {
			t.Error(err)
		}
	})
	return client, server
}

func namespace(t *testing.T, role string) string {
	t.Helper()
	name := fmt.Sprintf("knr-mtu-%s-%d-%d", role, os.Getpid(), time.Now().UnixNano()%1e9)
	command(t, "netns", "add", name)
	t.Cleanup(func() { command(t, "netns", "delete", name) })
	ip(t, name, "link", "set", "lo", "up")
	return name
}

// link joins two namespaces; the interfaces are called out (at the first) and in.
func link(t *testing.T, a, addressA string, mtuA int, b, addressB string, mtuB int) {
	t.Helper()
	command(t, "link", "add", "out", "netns", a, "type", "veth", "peer", "name", "in", "netns", b)
	for _, end := range []struct {
		namespace, device, address string
		mtu                        int
	}{{a, "out", addressA, mtuA}, {b, "in", addressB, mtuB}} {
		ip(t, end.namespace, "link", "set", end.device, "mtu", fmt.Sprint(end.mtu), "up")
		ip(t, end.namespace, "address", "add", end.address, "dev", end.device)
	}
}

func ip(t *testing.T, namespace string, args ...string) {
	t.Helper()
	command(t, append([]string{"-n", namespace}, args...)...)
}

func command(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// serveIn runs a sink on port 80 in a namespace until the test ends.
func serveIn(t *testing.T, namespace string) {
	t.Helper()
	var l net.Listener
	in(t, namespace, func() {
		var err error
		if l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp4", "10.9.2.2:80"); err != nil {
			t.Error(err)
		}
	})
	if l == nil {
		t.FailNow()
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { sink(c.(*net.TCPConn)); _ = c.Close() }()
		}
	}()
}

// in runs f on a thread that is in a network namespace, and ends the thread with it.
func in(t *testing.T, namespace string, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		ns, err := os.Open("/run/netns/" + namespace)
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			_ = ns.Close()
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
