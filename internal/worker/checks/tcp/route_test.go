package tcp_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/worker/check"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/tcp"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

// TestRoutes connects in a network namespace with the routes that block a destination on purpose, as
// amazon-ecs-cni-plugins#48 does with the cloud's metadata. The checks run in a process of their own.
func TestRoutes(t *testing.T) {
	missing.Root(t, "network namespaces")
	if _, err := exec.LookPath("ip"); err != nil {
		missing.Skip(t, "ip(8), for network namespaces", "install iproute2")
	}
	const inside = "TCP_TEST_INSIDE"
	if os.Getenv(inside) != "" {
		testRoutes(t)
		return
	}
	namespace := fmt.Sprintf("knr-tcp-%d", os.Getpid())
	ip := func(args ...string) {
		if out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	ip("netns", "add", namespace)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", namespace).Run() })
	for _, command := range []string{
		"link set lo up", "address add 192.0.2.1/32 dev lo", "address add 2001:db8::1/128 dev lo nodad",
		"route add blackhole 169.254.169.254/32", "route add blackhole 198.51.100.0/24",
		"route add prohibit 203.0.113.1/32", "route add unreachable 203.0.113.2/32",
		"-6 route add blackhole fd00:ec2::254/128",
	} {
		ip(append([]string{"-n", namespace}, strings.Fields(command)...)...)
	}
	child := exec.CommandContext(t.Context(), "ip", "netns", "exec", namespace, os.Args[0], "-test.run=^TestRoutes$")
	child.Env = append(os.Environ(), inside+"=1")
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func testRoutes(t *testing.T) {
	const blackhole = "is unreachable: its route is of type blackhole"
	for _, c := range []struct {
		address, expect string
		reason          check.Reason
		says            string
	}{
		{"169.254.169.254:80", tcp.ExpectClosed, check.NoReason, "is closed, as expected (Unreachable)"},
		{"198.51.100.7:443", tcp.ExpectClosed, check.NoReason, "is closed, as expected (Unreachable)"},
		{"[fd00:ec2::254]:80", tcp.ExpectClosed, check.NoReason, "is closed, as expected (Unreachable)"},
		{"203.0.113.1:80", tcp.ExpectClosed, check.NoReason, "is closed, as expected (PermissionDenied)"},
		{"203.0.113.2:80", tcp.ExpectClosed, check.NoReason, "is closed, as expected (Unreachable)"},
		{"169.254.169.254:80", tcp.ExpectOpen, check.ReasonUnreachable, blackhole},
		{"[fd00:ec2::254]:80", tcp.ExpectOpen, check.ReasonUnreachable, blackhole},
	} {
		f := run(&tcp.Settings{Addresses: []string{c.address}, Expect: c.expect}, nil, "")
		if f.Reason != c.reason || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s, expected %s: got %q: %s", c.address, c.expect, f.Reason, f.Message)
		}
	}
}
