package daemonset

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
	"github.com/kube-node-ready/kube-node-ready/test/servers/dnstest"
)

// A dry run with a kubeconfig that may do everything says what would be written on the node, writes nothing, and ends with the
// outcome.
func TestADryRunChangesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		taints []corev1.Taint
		passes bool
		code   int
		says   []string
	}{
		"passes": {[]corev1.Taint{gate, foreign}, true, 0, []string{"the checks ended", "the gating taints would be removed", "the verified label would be changed", `\"lastOutcome\":\"passed\"`}},
		"fails":  {nil, false, 1, []string{"the checks ended", "the gating taints would be added", `\"lastOutcome\":\"failed\"`, `\"lastCheck\":\"gate\"`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, c.taints...)
			if c.passes {
				s.pass()
			}
			before, _ := s.node()
			p := s.launch([]string{"HOME=" + s.TempDir(), "KUBECONFIG=" + control.Kubeconfig()}, "--dry-run", "--log-format=console")
			s.awaitEnd(p, c.code)
			for _, part := range c.says {
				if !strings.Contains(s.log(), part) {
					s.Errorf("it does not say %q", part)
				}
			}
			s.unchanged(before)
		})
	}
}

// In a pod a dry run writes nothing either, serves its metrics, and waits to be told to end: its kubelet would start it again.
func TestADryRunInAPod(t *testing.T) {
	s := begin(t, gate)
	s.pass()
	before, _ := s.node()
	p := s.through()
	process := s.start("--dry-run")
	s.eventually("the dry run is done", func() string {
		if log := s.log(); !strings.Contains(log, "the record would be") {
			return "so far it said: " + log
		}
		return ""
	})
	if got := s.scrape(); !strings.Contains(got, fmt.Sprintf("node_check_status{node=%q} 1", s.name)) {
		s.Errorf("metrics:\n%s", got)
	}
	time.Sleep(time.Second) // for an end, and a write, that must not come
	select {
	case <-process.Done():
		s.Error("it ended by itself")
	default:
	}
	s.ends(process)
	if got := p.seen(); len(got) != 0 {
		s.Errorf("writes %q", got)
	}
	s.unchanged(before)
}

// The metrics say how long the slowest check of a type took.
func TestDurations(t *testing.T) {
	s := begin(t, gate)
	const delay = 300 * time.Millisecond
	zone := map[string][]string{"near.example.": {"A 127.0.0.1"}}
	slow := dnstest.Start(t, dnstest.Behaviour{Zone: zone, Delay: delay})
	s.resolv = filepath.Join(s.TempDir(), "resolv.conf")
	s.must(nil, os.WriteFile(s.resolv, fmt.Appendf(nil, "nameserver [%s]:%d\n", slow.Addr(), slow.Port()), 0o600))
	s.checks = `{name: dns, type: dns, dns: {name: near.example.}}, {name: api, type: kubernetesAPI, kubernetesAPI: {via: [address], path: /version}}, {name: quick, type: kubernetesAPI, kubernetesAPI: {via: [address]}}`
	s.through().slow = "/version"
	s.start()
	s.becomes("released", released)
	text := s.scrape()
	for metric, least := range map[string]time.Duration{"node_check_dns_duration_seconds": delay, "node_check_api_duration_seconds": slowness} {
		_, rest, found := strings.Cut(text, fmt.Sprintf("\n%s{node=%q} ", metric, s.name))
		value, _, _ := strings.Cut(rest, "\n")
		seconds, err := strconv.ParseFloat(value, 64)
		if took := time.Duration(seconds * float64(time.Second)); !found || err != nil || took < least || took > 10*time.Second {
			s.Errorf("%s is %q, should be %s or a little more", metric, value, least)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// awaitEnd expects that a process ends by itself, with a code.
func (s *scene) awaitEnd(p *process.Process, code int) {
	s.Helper()
	select {
	case <-p.Done():
		if p.ExitCode() != code {
			s.Errorf("it ended with %d, should be %d", p.ExitCode(), code)
		}
	case <-time.After(patience):
		s.Fatal("it does not end")
	}
}

// unchanged expects that nobody has written the node since.
func (s *scene) unchanged(before *corev1.Node) {
	s.Helper()
	if after, f := s.node(); after.ResourceVersion != before.ResourceVersion {
		s.Errorf("the node was written: %+v, taints %v, labels %v", f, after.Spec.Taints, after.Labels)
	}
}
