package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kube-node-ready/kube-node-ready/internal/result"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/dnstest"
)

// The built-in list, on a node from which one of the two DNS servers cannot be reached: what
// answers hides it, and the warning names it without costing the node more than a second.
func TestADNSServerOutOfReach(t *testing.T) {
	zone := map[string][]string{"kubernetes.default.svc.corp.example.": {"A 10.96.0.1"}}
	good := dnstest.StartAt(t, "127.0.0.1", dnstest.Behaviour{Zone: zone})
	dead := dnstest.StartAt(t, "127.0.0.3", dnstest.Behaviour{DropUDP: true, DropTCP: true})
	endpoint := func(ip string, port uint16, pod string) string {
		return fmt.Sprintf(`{"addressType":"IPv4","endpoints":[{"addresses":[%q],"targetRef":{"kind":"Pod","name":%q}}],
			"ports":[{"name":"dns","protocol":"UDP","port":%d},{"name":"dns-tcp","protocol":"TCP","port":%d}]}`, ip, pod, port, port)
	}
	env := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch strings.TrimPrefix(r.URL.Path, "/apis/discovery.k8s.io/v1") {
		case "/readyz":
		case "/apis/authentication.k8s.io/v1/selfsubjectreviews":
			_, _ = fmt.Fprint(w, `{"status":{"userInfo":{"username":"worker"}}}`)
		case "/api/v1/namespaces/default/services/kubernetes":
			_, _ = fmt.Fprint(w, `{"spec":{"clusterIP":"10.96.0.1"}}`)
		case "/namespaces/default/endpointslices":
			_, _ = fmt.Fprint(w, `{"items":[{"endpoints":[{"addresses":["192.0.2.1"]}]}]}`)
		case "/api/v1/namespaces/kube-system/services/kube-dns":
			_, _ = fmt.Fprint(w, `{"spec":{"clusterIP":"127.0.0.1"}}`)
		case "/namespaces/kube-system/endpointslices":
			_, _ = fmt.Fprintf(w, `{"items":[%s,%s]}`, endpoint("127.0.0.1", good.Port(), "coredns-a"), endpoint("127.0.0.3", dead.Port(), "coredns-b"))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, fmt.Appendf(nil, "nameserver [127.0.0.1]:%d\nsearch ns.svc.corp.example svc.corp.example corp.example\noptions ndots:5\n", good.Port()), 0o600); err != nil {
		t.Fatal(err)
	}
	env[worker.EnvResolvConf] = resolv
	start := time.Now()
	code, stdout, stderr := runWorker(t, env, "--output", "json")
	took := time.Since(start)
	report, err := result.Parse([]byte(strings.TrimSpace(stdout)))
	if err != nil || code != 0 || report.Outcome != result.Passed || len(report.Checks) != 5 || took > 1500*time.Millisecond {
		t.Fatalf("exit code %d after %s: %v\n%s%s", code, took, err, stdout, stderr)
	}
	warning := report.Checks[0]
	for _, says := range []string{"(coredns-b), asked over UDP, did not answer", "(coredns-b), asked over TCP, did not answer", "the 2 other queries were answered well",
		"2 endpoints of Service kube-system/kube-dns, which has the address in resolv.conf"} {
		if warning.Name != "dns-endpoints" || warning.Outcome != result.Warning || warning.Reason != "Timeout" || !strings.Contains(warning.Message, says) {
			t.Errorf("no %q in %+v", says, warning)
		}
	}
}
